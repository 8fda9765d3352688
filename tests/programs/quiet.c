/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Thousands of requests whose completions no consumer takes. The queue must nevertheless free the
 * slots of completed requests.
 *
 *   quiet suppressed    in each queue length of requests, all but the last one are suppressed: no
 *                       suppressed request is reported
 *   quiet only          every request is suppressed: nothing is reported
 *   quiet unsignalled   every request is unsignalled: a consumer that polls finds the completions,
 *                       and the completions wake no thread
 *   quiet mute          the endpoint has no EVD for requests
 */

#include "dat_test.h"

enum { DTOS = 64, WRITES = DTOS * 100 };

static DAT_RETURN post(struct end *end, const struct introduction *peer, DAT_UINT64 number,
                       DAT_COMPLETION_FLAGS flags)
{
    /*
     * The memory of a write is used again after 2 * DTOS writes. The queue holds only DTOS writes,
     * so the earlier write has completed by then.
     */
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
        event = wait_event(end->request);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "a write failed");
        EXPECT(event.event_data.dto_completion_event_data.user_cookie.as_64 == n,
               "a suppressed write is reported");
    }
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->request, &event)) == DAT_QUEUE_EMPTY,
           "there is one completion too many");
}

/*
 * Takes the completions that are in the EVD. Their cookies must continue the sequence. Returns the
 * number of the last completed write.
 */
static DAT_UINT64 take_completions(struct end *end, DAT_UINT64 taken)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(end->request, &event) == DAT_SUCCESS) {
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "a write failed");
        EXPECT(event.event_data.dto_completion_event_data.user_cookie.as_64 == ++taken,
               "the completion is not that of write %lu", (unsigned long)taken);
    }
    return taken;
}

static void write_unsignalled(struct end *end, const struct introduction *peer)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    DAT_UINT64 taken = 0;
    for (DAT_UINT64 n = 1; n <= WRITES;) {
        DAT_RETURN posted = post(end, peer, n, DAT_COMPLETION_UNSIGNALLED_FLAG);
        if (DAT_GET_TYPE(posted) == DAT_INSUFFICIENT_RESOURCES) {
            /*
             * A completed write occupies its slot in the queue until the consumer takes the
             * completion.
             */
            EXPECT(n - taken > DTOS, "no room for write %lu, though %lu completions were taken",
                   (unsigned long)n, (unsigned long)taken);
            taken = take_completions(end, taken);
            EXPECT(now() < limit, "no room after %lu writes", (unsigned long)n);
            continue;
        }
        OK(posted);
        n++;
    }
    while ((taken = take_completions(end, taken)) < WRITES)
        EXPECT(now() < limit, "only %lu completions", (unsigned long)taken);
}

static void write_without_taking_completions(struct end *end, const struct introduction *peer,
                                             DAT_COMPLETION_FLAGS flags)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    long refused = 0;
    for (DAT_UINT64 n = 1; n <= WRITES;) {
        DAT_RETURN posted = post(end, peer, n, flags);
        if (DAT_GET_TYPE(posted) == DAT_INSUFFICIENT_RESOURCES) {
            refused++;
            EXPECT(now() < limit, "no room after %lu writes", (unsigned long)n);
            continue;
        }
        OK(posted);
        n++;
    }
    printf("%d writes, %ld refused for lack of room\n", WRITES, refused);
}

static bool requests_idle(struct end *end)
{
    DAT_EP_STATE state;
    DAT_BOOLEAN receives, requests;
    OK(dat_ep_get_status(end->ep, &state, &receives, &requests));
    return requests == DAT_TRUE;
}

static void write_suppressed_only(struct end *end, const struct introduction *peer)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    DAT_EVENT event;
    write_without_taking_completions(end, peer, DAT_COMPLETION_SUPPRESS_FLAG);
    do {
        EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->request, &event)) == DAT_QUEUE_EMPTY,
               "a suppressed write is reported");
        EXPECT(now() < limit, "the requests do not become idle");
    } while (!requests_idle(end));
    /*
     * All slots of the queue are free again, so it takes as many requests with completions as it is
     * long.
     */
    for (int n = 0; n < DTOS; n++)
        OK(post(end, peer, WRITES, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(DAT_GET_TYPE(post(end, peer, WRITES, DAT_COMPLETION_DEFAULT_FLAG)) ==
               DAT_INSUFFICIENT_RESOURCES,
           "the queue took one request too many");
    for (int n = 0; n < DTOS; n++) {
        event = wait_event(end->request);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "a write failed");
        EXPECT(event.event_data.dto_completion_event_data.user_cookie.as_64 == WRITES,
               "a suppressed write is reported");
    }
    EXPECT(requests_idle(end), "all completions were taken, but the requests are not idle");
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    bool mute = strcmp(mode, "mute") == 0, unsignalled = strcmp(mode, "unsignalled") == 0;
    bool only = strcmp(mode, "only") == 0;
    int pipe_ends[2];
    struct end end;
    pid_t target;
    DAT_EVENT event;

    EXPECT(mute || unsignalled || only || strcmp(mode, "suppressed") == 0,
           "usage: quiet suppressed|only|unsignalled|mute");
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    target = fork();
    EXPECT(target >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096, DTOS);
    if (target == 0) {
        DAT_UINT64 last;
        serve_one(&end, pipe_ends[1]);
        event = wait_event(end.connect);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
               event.event_number);
        memcpy(&last, end.buffer, sizeof last);
        EXPECT(last == WRITES, "the last write is number %lu", (unsigned long)last);
    } else {
        struct introduction peer;
        if (mute || unsignalled) {
            DAT_EP_ATTR attr = ep_attributes(DTOS);
            if (unsignalled)
                attr.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            OK(dat_ep_free(end.ep));
            OK(dat_ep_create(end.ia, end.pz, end.recv, mute ? DAT_HANDLE_NULL : end.request,
                             end.connect, &attr, &end.ep));
        }
        peer = connect_to(&end, pipe_ends[0]);
        if (mute)
            write_without_taking_completions(&end, &peer, DAT_COMPLETION_DEFAULT_FLAG);
        else if (unsignalled)
            write_unsignalled(&end, &peer);
        else if (only)
            write_suppressed_only(&end, &peer);
        else
            write_suppressed(&end, &peer);
        /* A graceful disconnect carries out the posted writes first. */
        OK(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
        event = wait_event(end.connect);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
               event.event_number);
    }
    end_close(&end);
    if (target == 0)
        return 0;
    join(target);
    puts("ok");
    return 0;
}
