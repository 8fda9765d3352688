/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Newcomers: every 100 ms a client connects, sends a message, receives it back and disconnects,
 * until the program is killed. It prints a line for each: `newcomer 1.23 ms`, or `refused` and the
 * event.
 *
 *   newcomers PORT   (the address is in OPENDAT_TEST_ADDRESS)
 */

#include "dat_test.h"

#include <sys/prctl.h>

enum { LENGTH = 64 };

static void drain(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS)
        ;
}

/* Makes an endpoint ready for another connection. */
static void reset_endpoint(struct end *end)
{
    OK(dat_ep_reset(end->ep));
    drain(end->recv);
    drain(end->request);
}

/* Sends the first half of the buffer. Returns false if the connection has ended. */
static bool post_send(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    return dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG) ==
           DAT_SUCCESS;
}

/* Posts a receive into the second half of the buffer. */
static void post_receive(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, LENGTH, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static bool is_received(struct end *end)
{
    DAT_EVENT event = wait_event(end->recv);
    return event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS;
}

/* Sends back what each client sends. */
static void serve(DAT_CONN_QUAL port, int ready)
{
    DAT_PSP_HANDLE psp;
    struct end end;
    end_open(&end, 4096, 2);
    OK(dat_psp_create(end.ia, port, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    EXPECT(write(ready, "x", 1) == 1, "the parent process has ended");
    for (;;) {
        DAT_EVENT event = wait_event(end.cr);
        EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "event 0x%x",
               event.event_number);
        post_receive(&end);
        OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, end.ep, 0, NULL));
        event = wait_event(end.connect);
        if (event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED) {
            if (is_received(&end)) {
                memcpy(end.buffer, end.buffer + LENGTH, LENGTH);
                post_send(&end);
            }
            wait_event(end.connect);
        }
        reset_endpoint(&end);
    }
}

/* Makes one connection, and prints its outcome. */
static void connect_once(struct end *end, DAT_CONN_QUAL port, unsigned number)
{
    double start = now();
    DAT_EVENT event;
    memset(end->buffer, (int)(number % 251) + 1, LENGTH);
    memset(end->buffer + LENGTH, 0, LENGTH);
    post_receive(end);
    start_connect(end->ep, port);
    event = wait_event(end->connect);
    if (event.event_number != DAT_CONNECTION_EVENT_ESTABLISHED) {
        printf("refused: event 0x%x after %.3f s\n", event.event_number, now() - start);
    } else if (!post_send(end) || !is_received(end)) {
        printf("refused: the connection has ended after %.3f s\n", now() - start);
        wait_event(end->connect);
    } else {
        EXPECT(memcmp(end->buffer, end->buffer + LENGTH, LENGTH) == 0,
               "the server returned other octets");
        printf("newcomer %.2f ms\n", (now() - start) * 1e3);
        OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
        wait_event(end->connect);
    }
    reset_endpoint(end);
}

int main(int argc, char **argv)
{
    DAT_CONN_QUAL port = argc == 2 ? (DAT_CONN_QUAL)atoi(argv[1]) : 0;
    struct timespec next;
    struct end end;
    int ready[2];
    char octet;

    EXPECT(port > 0, "usage: newcomers PORT");
    EXPECT(pipe(ready) == 0, "pipe: %s", strerror(errno));
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(port, ready[1]);
    }
    EXPECT(read(ready[0], &octet, 1) == 1, "the server has not started");
    end_open(&end, 4096, 2);
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (unsigned number = 0;; number++) {
        connect_once(&end, port, number);
        next.tv_nsec += 100000000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}
