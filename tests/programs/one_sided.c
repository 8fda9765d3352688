/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One-sided operations complete, with the right octets, while the target's application does not
 * call DAT.
 *
 *   one_sided compute   the target's application computes on as many threads as there are
 *                       processors
 *   one_sided sleep     the target's application sleeps
 *   one_sided poll      the target's application computes, and the initiator polls instead of
 *                       waiting
 */

#include "dat_test.h"

#include <pthread.h>

enum { MAX_LENGTH = 1 << 20, ROUNDS = 20, MAX_THREADS = 64 };
/*
 * The target's buffer ends with an octet that stops the target. The initiator's buffer has room for
 * the octets that it reads back.
 */
#define STOP ((size_t)MAX_LENGTH)
#define BUFFER ((size_t)2 * MAX_LENGTH)

static const size_t SIZES[] = {1, 7, 64, 4096, 4097, 65536, 65537, MAX_LENGTH};

static volatile unsigned long work;

static void *compute(void *stop)
{
    unsigned long value = 1;
    while (*(volatile char *)stop == 0)
        value = value * 6364136223846793005u + 1442695040888963407u;
    work = value;
    return NULL;
}

static void report_missing_stop(int signal)
{
    static const char text[] = "the initiator has not finished, and the target still computes\n";
    (void)signal;
    _exit(write(2, text, sizeof text - 1) < 0 ? 1 : 2);
}

/* The target does not call DAT between the connection and the stop. */
static void be_target(struct end *end, int fd, bool sleeps)
{
    volatile char *stop = end->buffer + STOP;
    double limit;

    serve_one(end, fd);
    limit = now() + WAIT_LIMIT_SECONDS;
    if (sleeps) {
        struct timespec pause_time = {0, 1000000};
        while (*stop == 0) {
            EXPECT(now() < limit, "the initiator has not finished within %d s", WAIT_LIMIT_SECONDS);
            nanosleep(&pause_time, NULL);
        }
    } else {
        long others = sysconf(_SC_NPROCESSORS_ONLN) - 1;
        pthread_t threads[MAX_THREADS];
        if (others > MAX_THREADS)
            others = MAX_THREADS;
        for (long i = 0; i < others; i++)
            EXPECT(pthread_create(&threads[i], NULL, compute, (void *)stop) == 0, "no thread");
        signal(SIGALRM, report_missing_stop);
        alarm(WAIT_LIMIT_SECONDS);
        compute((void *)stop);
        for (long i = 0; i < others; i++)
            pthread_join(threads[i], NULL);
    }
    wait_event(end->connect);
}

static void complete(struct end *end, bool polls, size_t length, DAT_UINT64 cookie)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    DAT_DTO_COMPLETION_EVENT_DATA *dto;
    DAT_EVENT event;

    if (polls) {
        while (dat_evd_dequeue(end->request, &event) != DAT_SUCCESS)
            EXPECT(now() < limit, "no completion within %d s", WAIT_LIMIT_SECONDS);
    } else {
        event = wait_event(end->request);
    }
    dto = &event.event_data.dto_completion_event_data;
    EXPECT(dto->status == DAT_DTO_SUCCESS, "status %d", dto->status);
    EXPECT(dto->user_cookie.as_64 == cookie, "cookie %lu", (unsigned long)dto->user_cookie.as_64);
    EXPECT(dto->transfered_length == length, "%u octets in place of %zu",
           (unsigned)dto->transfered_length, length);
}

static void be_initiator(struct end *end, int fd, bool polls)
{
    struct introduction peer = connect_to(end, fd);
    double started = now(), seconds;
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET remote;
    DAT_DTO_COOKIE cookie = {.as_64 = 0};
    DAT_EVENT event;

    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
            size_t size = SIZES[i];
            for (size_t byte = 0; byte < size; byte++)
                end->buffer[byte] = (char)(byte * 31 + size + (size_t)round);
            memset(end->buffer + MAX_LENGTH, 0xee, size);

            local = local_segment(end, 0, size);
            remote = remote_segment(&peer, 0, size);
            cookie.as_64++;
            OK(dat_ep_post_rdma_write(end->ep, 1, &local, cookie, &remote,
                                      DAT_COMPLETION_DEFAULT_FLAG));
            complete(end, polls, size, cookie.as_64);

            local = local_segment(end, MAX_LENGTH, size);
            cookie.as_64++;
            OK(dat_ep_post_rdma_read(end->ep, 1, &local, cookie, &remote,
                                     DAT_COMPLETION_DEFAULT_FLAG));
            complete(end, polls, size, cookie.as_64);
            EXPECT(memcmp(end->buffer, end->buffer + MAX_LENGTH, size) == 0,
                   "%zu octets were read back changed", size);
        }
    }
    seconds = now() - started;
    printf("%.0f us for each operation\n", seconds * 1e6 / (double)cookie.as_64);

    end->buffer[0] = 1;
    local = local_segment(end, 0, 1);
    remote = remote_segment(&peer, STOP, 1);
    cookie.as_64++;
    OK(dat_ep_post_rdma_write(end->ep, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    complete(end, polls, 1, cookie.as_64);
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    bool polls = strcmp(how, "poll") == 0, sleeps = strcmp(how, "sleep") == 0;
    int pipe_ends[2];
    struct end end;
    pid_t target;

    EXPECT(polls || sleeps || strcmp(how, "compute") == 0, "usage: one_sided compute|sleep|poll");
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    target = fork();
    EXPECT(target >= 0, "fork: %s", strerror(errno));
    end_open(&end, BUFFER, 8);
    if (target == 0) {
        be_target(&end, pipe_ends[1], sleeps);
        end_close(&end);
        return 0;
    }
    be_initiator(&end, pipe_ends[0], polls);
    end_close(&end);
    join(target);
    puts("ok");
    return 0;
}
