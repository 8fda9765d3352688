/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * beside_idle wait|poll IDLE ROUNDS: two processes have IDLE connections that carry nothing, and
 * one more on which a message of 64 octets goes to the peer and back ROUNDS times. The consumers
 * block in dat_evd_wait, or poll.
 *
 * The program prints how long the round trips took, and how much of the longest one the scheduler
 * does not account for: the duration of the round trip, less the time for which threads of the two
 * processes were ready to run and had no processor (schedstat of each thread). A lost wake-up would
 * be time in which all threads sleep, so it shows in this figure, however busy the machine is.
 */

#include "dat_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

enum { LENGTH = 64, DTOS = 8, BURST = 100, MAX_THREADS = 32 };

static int connections, rounds;
static bool polls;
static DAT_EP_HANDLE *eps;

/* The open schedstat files of all threads of both processes. */
static int schedstats[MAX_THREADS], threads;

static void open_schedstats(pid_t process)
{
    char name[320];
    DIR *tasks;
    struct dirent *task;
    snprintf(name, sizeof name, "/proc/%d/task", (int)process);
    tasks = opendir(name);
    EXPECT(tasks, "%s: %s", name, strerror(errno));
    while ((task = readdir(tasks)) != NULL) {
        if (task->d_name[0] == '.')
            continue;
        EXPECT(threads < MAX_THREADS, "more than %d threads", MAX_THREADS);
        snprintf(name, sizeof name, "/proc/%d/task/%s/schedstat", (int)process, task->d_name);
        schedstats[threads] = open(name, O_RDONLY);
        EXPECT(schedstats[threads] >= 0, "%s: %s", name, strerror(errno));
        threads++;
    }
    closedir(tasks);
}

/* Returns how long the threads have waited for a processor so far, in seconds. */
static double processor_wait(void)
{
    double all = 0;
    for (int i = 0; i < threads; i++) {
        char text[128];
        unsigned long long ran, delayed;
        ssize_t length = pread(schedstats[i], text, sizeof text - 1, 0);
        EXPECT(length > 0, "a schedstat file cannot be read: %s", strerror(errno));
        text[length] = 0;
        EXPECT(sscanf(text, "%llu %llu", &ran, &delayed) == 2, "unexpected schedstat: %s", text);
        all += (double)delayed * 1e-9;
    }
    return all;
}

/* Takes the next event from the EVD, by blocking or by polling. */
static void next_event(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    if (polls) {
        while (dat_evd_dequeue(evd, &event) != DAT_SUCCESS)
            ;
    } else {
        event = wait_event(evd);
    }
    EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT, "event 0x%x", event.event_number);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "a message failed");
}

static DAT_EP_HANDLE endpoint(struct end *end, int n)
{
    DAT_EP_ATTR attr = ep_attributes(DTOS);
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &eps[n]));
    return eps[n];
}

static DAT_EP_HANDLE busy_endpoint(void)
{
    return eps[connections - 1];
}

static void post_receive(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 0};
    OK(dat_ep_post_recv(busy_endpoint(), 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void send_message(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, LENGTH, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 0};
    OK(dat_ep_post_send(busy_endpoint(), 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void serve(struct end *end, int fd)
{
    struct introduction self = {free_port(), 0, 0};
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    OK(dat_psp_create(end->ia, self.port, end->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    EXPECT(write(fd, &self, sizeof self) == sizeof self, "the peer has gone");
    for (int n = 0; n < connections; n++) {
        event = wait_event(end->cr);
        OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, endpoint(end, n), 0,
                         NULL));
    }
    for (int n = 0; n < connections; n++)
        wait_established(end->connect);
    post_receive(end);
    EXPECT(write(fd, "", 1) == 1, "the peer has gone");
    for (int i = 0; i < rounds; i++) {
        next_event(end->recv);
        post_receive(end);
        send_message(end);
        next_event(end->request);
    }
    for (int n = 0; n < connections; n++)
        wait_event(end->connect);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void call(struct end *end, int fd, pid_t peer_process)
{
    double *took = calloc((size_t)rounds, sizeof *took), longest_unaccounted = 0, with_it = 0;
    struct introduction peer;
    int pending = 0;
    char ready;

    EXPECT(took, "no memory");
    EXPECT(read(fd, &peer, sizeof peer) == sizeof peer, "the peer has not sent its port");
    for (int n = 0; n < connections; n++) {
        /*
         * The peer may see requests that are under way together in any order. The request of the
         * busy connection is sent only after all others were accepted, so that the peer recognizes
         * it as the last one.
         */
        if (pending == BURST || n == connections - 1)
            for (; pending > 0; pending--)
                wait_established(end->connect);
        start_connect(endpoint(end, n), peer.port);
        pending++;
    }
    wait_established(end->connect);
    EXPECT(read(fd, &ready, 1) == 1, "the peer is not ready");
    open_schedstats(getpid());
    open_schedstats(peer_process);
    for (int i = 0; i < rounds; i++) {
        double waited_before = processor_wait(), began = now(), unaccounted;
        post_receive(end);
        send_message(end);
        next_event(end->recv);
        next_event(end->request);
        took[i] = now() - began;
        unaccounted = took[i] - (processor_wait() - waited_before);
        if (unaccounted > longest_unaccounted) {
            longest_unaccounted = unaccounted;
            with_it = took[i];
        }
    }
    qsort(took, (size_t)rounds, sizeof *took, by_size);
    printf("round trips: median %.1f us, longest %.1f us; the scheduler does not account for %.1f "
           "of %.1f us\n",
           took[rounds / 2] * 1e6, took[rounds - 1] * 1e6, longest_unaccounted * 1e6,
           with_it * 1e6);
    for (int i = 0; i < threads; i++)
        close(schedstats[i]);
    free(took);
    for (int n = 0; n < connections; n++)
        OK(dat_ep_disconnect(eps[n], DAT_CLOSE_ABRUPT_FLAG));
    for (int n = 0; n < connections; n++)
        wait_event(end->connect);
}

int main(int argc, char **argv)
{
    int pipe_ends[2];
    struct rlimit files;
    struct end end;
    pid_t peer_process;

    EXPECT(argc == 4, "usage: beside_idle wait|poll IDLE ROUNDS");
    polls = strcmp(argv[1], "poll") == 0;
    EXPECT(polls || strcmp(argv[1], "wait") == 0, "%s: wait or poll is needed", argv[1]);
    connections = atoi(argv[2]) + 1;
    rounds = atoi(argv[3]);
    EXPECT(connections > 0 && rounds > 0, "IDLE and ROUNDS must be positive");
    eps = calloc((size_t)connections, sizeof(DAT_EP_HANDLE));
    EXPECT(eps, "no memory");
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    EXPECT(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit: %s", strerror(errno));
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    peer_process = fork();
    EXPECT(peer_process >= 0, "fork: %s", strerror(errno));
    end_open(&end, (size_t)2 * LENGTH, DTOS);
    OK(dat_evd_resize(end.connect, 2 * connections));
    OK(dat_evd_resize(end.cr, connections));
    if (peer_process == 0)
        serve(&end, pipe_ends[1]);
    else
        call(&end, pipe_ends[0], peer_process);
    for (int n = 0; n < connections; n++)
        OK(dat_ep_free(eps[n]));
    OK(dat_ep_free(end.ep));
    if (peer_process == 0)
        return 0;
    join(peer_process);
    puts("ok");
    return 0;
}
