/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An RDMA write is placed when it completes: the initiator takes the completion of a write on one
 * connection and announces the write by a send on another connection. When that message arrives,
 * the target finds all octets of the write, although it only looks at the other connection.
 */

#include "dat_test.h"

enum { ROUNDS = 100, LENGTH = 128 << 10 };

static void take(DAT_EVD_HANDLE evd)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    DAT_EVENT event;

    while (dat_evd_dequeue(evd, &event) != DAT_SUCCESS)
        EXPECT(now() < limit, "no completion within %d s", WAIT_LIMIT_SECONDS);
    EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT &&
               event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "event 0x%x, status %d", event.event_number,
           event.event_data.dto_completion_event_data.status);
}

static void send_message(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, 1);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    take(end->request);
}

static void be_target(struct end *writes, struct end *messages, int fd)
{
    const volatile char *octets = writes->buffer;
    int incomplete = 0;

    post_receives(messages, 1, 1);
    serve_one(writes, fd);
    serve_one(messages, fd);
    for (int round = 1; round <= ROUNDS; round++) {
        size_t placed = 0;
        take(messages->recv);
        while (placed < LENGTH && octets[placed] == (char)round)
            placed++;
        incomplete += placed < LENGTH;
        if (round < ROUNDS)
            post_receives(messages, 1, 1);
        send_message(messages);
    }
    EXPECT(incomplete == 0, "octets of %d of %d completed writes were missing", incomplete, ROUNDS);
    wait_event(writes->connect);
    wait_event(messages->connect);
}

static void be_initiator(struct end *writes, struct end *messages, int fd)
{
    struct introduction peer = connect_to(writes, fd);
    DAT_LMR_TRIPLET local = local_segment(writes, 0, LENGTH);
    DAT_RMR_TRIPLET remote = remote_segment(&peer, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 0};

    connect_to(messages, fd);
    for (int round = 1; round <= ROUNDS; round++) {
        memset(writes->buffer, round, LENGTH);
        post_receives(messages, 1, 1);
        OK(dat_ep_post_rdma_write(writes->ep, 1, &local, cookie, &remote,
                                  DAT_COMPLETION_DEFAULT_FLAG));
        take(writes->request);
        send_message(messages);
        take(messages->recv);
    }
    OK(dat_ep_disconnect(writes->ep, DAT_CLOSE_GRACEFUL_FLAG));
    OK(dat_ep_disconnect(messages->ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_event(writes->connect);
    wait_event(messages->connect);
}

int main(void)
{
    int pipe_ends[2];
    struct end writes, messages;
    pid_t target;

    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    target = fork();
    EXPECT(target >= 0, "fork: %s", strerror(errno));
    end_open(&writes, LENGTH, 4);
    end_open(&messages, 4096, 4);
    if (target == 0)
        be_target(&writes, &messages, pipe_ends[1]);
    else
        be_initiator(&writes, &messages, pipe_ends[0]);
    end_close(&writes);
    end_close(&messages);
    if (target == 0)
        return 0;
    join(target);
    puts("ok");
    return 0;
}
