/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Nothing wakes two connected processes that do nothing: none of their threads sleeps with a short
 * time limit. First one process writes and the other one watches its memory, so that the library's
 * threads are at work.
 */

#include "dat_test.h"

#include <dirent.h>
#include <sys/syscall.h>

enum { WRITES = 100 };

static void sleep_ms(long milliseconds)
{
    struct timespec time = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Returns how often threads other than this one have slept so far, and how many there are. */
static unsigned long count_sleeps(int *threads)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    unsigned long sum = 0;
    *threads = 0;
    EXPECT(tasks, "/proc/self/task: %s", strerror(errno));
    while ((task = readdir(tasks))) {
        char path[300], line[256];
        unsigned long count;
        FILE *status;
        if (task->d_name[0] == '.' || atol(task->d_name) == syscall(SYS_gettid))
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        status = fopen(path, "r");
        EXPECT(status, "%s: %s", path, strerror(errno));
        while (fgets(line, sizeof line, status))
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &count) == 1)
                sum += count;
        fclose(status);
        ++*threads;
    }
    closedir(tasks);
    return sum;
}

/*
 * Expects that sooner or later nothing wakes a thread for half a second. A thread that polls would
 * never leave so much time.
 */
static void expect_idle(const char *who)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    unsigned long before, after;
    int threads;
    do {
        EXPECT(now() < limit, "%s: something wakes its threads again and again", who);
        before = count_sleeps(&threads);
        sleep_ms(500);
        after = count_sleeps(&threads);
    } while (after != before);
    EXPECT(threads > 0, "%s: it has no progress thread", who);
    printf("%s: %d threads, %lu sleeps\n", who, threads, after);
}

static void notify(int fd)
{
    EXPECT(write(fd, "", 1) == 1, "the peer has gone");
}

static void await_notice(int fd)
{
    char word;
    EXPECT(read(fd, &word, 1) == 1, "the peer has gone");
}

static void write_all(struct end *end, const struct introduction *peer)
{
    for (int n = 1; n <= WRITES; n++) {
        DAT_LMR_TRIPLET local = local_segment(end, 64, 1);
        DAT_RMR_TRIPLET remote = remote_segment(peer, 0, 1);
        DAT_DTO_COOKIE cookie = {.as_64 = 0};
        DAT_EVENT event;
        end->buffer[64] = (char)n;
        OK(dat_ep_post_rdma_write(end->ep, 1, &local, cookie, &remote,
                                  DAT_COMPLETION_DEFAULT_FLAG));
        event = wait_event(end->request);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "a write failed");
        sleep_ms(1);
    }
}

static void watch(const struct end *end)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    while (((volatile char *)end->buffer)[0] != WRITES)
        EXPECT(now() < limit, "the written octets have not arrived");
}

int main(void)
{
    int to_client[2], to_server[2];
    struct end end;
    pid_t server;

    EXPECT(pipe(to_client) == 0 && pipe(to_server) == 0, "pipe: %s", strerror(errno));
    server = fork();
    EXPECT(server >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096, 8);
    if (server == 0) {
        serve_one(&end, to_client[1]);
        watch(&end);
        expect_idle("the target");
        notify(to_client[1]);
        await_notice(to_server[0]);
    } else {
        struct introduction peer = connect_to(&end, to_client[0]);
        DAT_EVENT event;
        write_all(&end, &peer);
        await_notice(to_client[0]);
        expect_idle("the writer");
        notify(to_server[1]);
        OK(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
        event = wait_event(end.connect);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
               event.event_number);
        end_close(&end);
        join(server);
        puts("ok");
        return 0;
    }
    DAT_EVENT event = wait_event(end.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
    end_close(&end);
    return 0;
}
