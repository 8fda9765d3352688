/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Thousands of requests whose completions nobody takes: their places in the queue come free all the same.
 *
 *   quiet suppressed   all but the last of each queue's length are suppressed, and none of those is reported
 *   quiet mute         the endpoint has no EVD for requests
 */

#include "dat_test.h"

enum { DTOS = 64, WRITES = DTOS * 100, LIMIT = 60 };

static DAT_RETURN post(struct end *end, const struct introduction *peer, DAT_UINT64 number, DAT_COMPLETION_FLAGS flags)
{
    /* Each has memory of its own until its place comes round again, which it does only when it is done. */
    size_t slot = number % (2 * DTOS) * sizeof number;
    DAT_LMR_TRIPLET local = local_segment(end, slot, sizeof number);
    DAT_RMR_TRIPLET remote = remote_segment(peer, 0, sizeof number);
    DAT_DTO_COOKIE cookie = {.as_64 = number};
    memcpy(end->buffer + slot, &number, sizeof number);
    return dat_ep_post_rdma_write(end->ep, 1, &local, cookie, &remote, flags);
}

static void write_suppressed(struct end *end, const struct introduction *peer)
{
    DAT_EVENT event;
    for (DAT_UINT64 n = 1; n <= WRITES; n++) {
        bool last = n % DTOS == 0;
        OK(post(end, peer, n, last ? DAT_COMPLETION_DEFAULT_FLAG : DAT_COMPLETION_SUPPRESS_FLAG));
        if (!last)
            continue;
        event = wait_event(end->request, LIMIT * SECOND);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "a write failed");
        EXPECT(event.event_data.dto_completion_event_data.user_cookie.as_64 == n, "a suppressed one is reported");
    }
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->request, &event)) == DAT_QUEUE_EMPTY, "one more completion");
}

static void write_unheard(struct end *end, const struct introduction *peer)
{
    double limit = now() + LIMIT;
    long full = 0;
    for (DAT_UINT64 n = 1; n <= WRITES;) {
        DAT_RETURN posted = post(end, peer, n, DAT_COMPLETION_DEFAULT_FLAG);
        if (DAT_GET_TYPE(posted) == DAT_INSUFFICIENT_RESOURCES) {
            full++;
            EXPECT(now() < limit, "no room after %lu writes", (unsigned long)n);
            continue;
        }
        OK(posted);
        n++;
    }
    printf("%d writes, %ld times no room\n", WRITES, full);
}

int main(int argc, char **argv)
{
    bool mute = argc == 2 && strcmp(argv[1], "mute") == 0;
    int pipe_ends[2];
    struct end end;
    pid_t target;
    DAT_EVENT event;

    EXPECT(mute || (argc == 2 && strcmp(argv[1], "suppressed") == 0), "usage: quiet suppressed|mute");
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    target = fork();
    EXPECT(target >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096, DTOS);
    if (target == 0) {
        DAT_UINT64 last;
        serve_one(&end, pipe_ends[1]);
        event = wait_event(end.connect, 2 * LIMIT * SECOND);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x", event.event_number);
        memcpy(&last, end.buffer, sizeof last);
        EXPECT(last == WRITES, "the last write is number %lu", (unsigned long)last);
    } else {
        struct introduction peer;
        if (mute) {
            DAT_EP_ATTR attr = ep_attributes(DTOS);
            OK(dat_ep_free(end.ep));
            OK(dat_ep_create(end.ia, end.pz, end.recv, DAT_HANDLE_NULL, end.connect, &attr, &end.ep));
        }
        peer = connect_to(&end, pipe_ends[0]);
        if (mute)
            write_unheard(&end, &peer);
        else
            write_suppressed(&end, &peer);
        /* What was posted is carried out first. */
        OK(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
        event = wait_event(end.connect, LIMIT * SECOND);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x", event.event_number);
    }
    end_close(&end);
    if (target == 0)
        return 0;
    join(target);
    puts("ok");
    return 0;
}
