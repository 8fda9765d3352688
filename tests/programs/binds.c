/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tests binds of an endpoint's RMR that wait for something else, are flushed, or follow an
 * invalidation.
 *
 *   binds late          a send posted before the bind waits for the peer's receive; both complete,
 *                       in order
 *   binds flushed       a queue full of binds is flushed, and its EVD has room for all of them
 *   binds invalidated   the peer invalidates the RMR, and the owner binds it again before its
 *                       consumer has seen the invalidation
 */

#include "dat_test.h"

enum { SIZE = 4096, WINDOW_LENGTH = 64, ROUNDS = 20, BINDS = 4, QUEUE_LENGTH = 300 };

static void notify(int fd)
{
    EXPECT(write(fd, "x", 1) == 1, "the other process has gone");
}

static void await_notice(int fd)
{
    char c;
    EXPECT(read(fd, &c, 1) == 1, "the other process has gone");
}

/* Opens an adapter with an endpoint whose request EVD also takes bind completions. */
static void open_for_binds(struct end *end, DAT_COUNT dtos)
{
    DAT_EP_ATTR attr = ep_attributes(dtos);
    end_open(end, SIZE, dtos);
    OK(dat_ep_free(end->ep));
    OK(dat_evd_free(end->request));
    OK(dat_evd_create(end->ia, dtos, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG,
                      &end->request));
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &end->ep));
}

static void post_send(struct end *end, DAT_RMR_CONTEXT invalidates)
{
    DAT_LMR_TRIPLET local = local_segment(end, 0, WINDOW_LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    if (invalidates == 0)
        OK(dat_ep_post_send(end->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    else
        OK(dat_ep_post_send_with_invalidate(end->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG,
                                            DAT_TRUE, invalidates));
}

static DAT_RMR_CONTEXT bind_window(struct end *end, DAT_RMR_HANDLE rmr)
{
    DAT_LMR_TRIPLET window = local_segment(end, 0, WINDOW_LENGTH);
    DAT_RMR_COOKIE cookie = {.as_64 = 2};
    DAT_RMR_CONTEXT context;
    OK(dat_rmr_bind(rmr, end->lmr, &window, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, end->ep,
                    cookie, DAT_COMPLETION_DEFAULT_FLAG, &context));
    return context;
}

static void expect_dto(DAT_EVD_HANDLE evd, const char *what)
{
    DAT_EVENT event = wait_event(evd);
    EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT, "%s: event 0x%x", what,
           event.event_number);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "%s: status %d",
           what, event.event_data.dto_completion_event_data.status);
}

static void expect_bind(struct end *end)
{
    DAT_EVENT event = wait_event(end->request);
    EXPECT(event.event_number == DAT_RMR_BIND_COMPLETION_EVENT,
           "event 0x%x in place of a bind completion", event.event_number);
    EXPECT(event.event_data.rmr_completion_event_data.status == DAT_RMR_BIND_SUCCESS,
           "bind: status %d", event.event_data.rmr_completion_event_data.status);
}

/* Run by the peer: reads the memory that the owner's RMR makes accessible. */
static void read_window(struct end *end, DAT_VADDR address, DAT_RMR_CONTEXT context)
{
    DAT_LMR_TRIPLET local = local_segment(end, WINDOW_LENGTH, WINDOW_LENGTH);
    DAT_RMR_TRIPLET remote = {
        .virtual_address = address, .segment_length = WINDOW_LENGTH, .rmr_context = context};
    DAT_DTO_COOKIE cookie = {.as_64 = 3};
    OK(dat_ep_post_rdma_read(end->ep, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    expect_dto(end->request, "a read of the window");
}

static void expect_end(struct end *end)
{
    DAT_EVENT event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
}

static void flush_many_binds(struct end *end)
{
    DAT_RMR_HANDLE rmr;
    DAT_EVENT event;

    OK(dat_rmr_create_for_ep(end->pz, &rmr));
    post_send(end, 0);
    for (int i = 1; i < QUEUE_LENGTH; i++)
        bind_window(end, rmr);
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_ABRUPT_FLAG));
    for (int i = 0; i < QUEUE_LENGTH; i++)
        wait_event(end->request);
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->request, &event)) == DAT_QUEUE_EMPTY,
           "there is one completion too many");
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->async, &event)) == DAT_QUEUE_EMPTY,
           "asynchronous event 0x%x", event.event_number);
    expect_end(end);
    OK(dat_rmr_free(rmr));
}

/* The process that binds. `out` and `in` lead to its peer. */
static void be_owner(struct end *end, bool late, int out, int in)
{
    DAT_RMR_HANDLE rmr;
    DAT_RMR_CONTEXT context;
    DAT_EVENT event;
    DAT_COUNT more;

    connect_to(end, in);
    OK(dat_rmr_create_for_ep(end->pz, &rmr));
    for (int round = 0; round < ROUNDS; round++) {
        if (late) {
            post_send(end, 0);
            for (int i = 0; i < BINDS; i++)
                context = bind_window(end, rmr);
            /* The wait is long enough for the peer to refuse the first attempt of the send. */
            DAT_RETURN status = dat_evd_wait(end->request, SECOND / 20, 1, &event, &more);
            EXPECT(DAT_GET_TYPE(status) == DAT_TIMEOUT_EXPIRED,
                   "an operation completed before the send");
            notify(out);
            expect_dto(end->request, "the send");
            for (int i = 0; i < BINDS; i++)
                expect_bind(end);
        } else {
            post_receives(end, 1, WINDOW_LENGTH);
            context = bind_window(end, rmr);
            expect_bind(end);
            EXPECT(write(out, &context, sizeof context) == sizeof context, "the peer has gone");
            /*
             * The peer has invalidated the RMR, but this consumer has not yet taken the event that
             * says so.
             */
            await_notice(in);
            context = bind_window(end, rmr);
            expect_bind(end);
            expect_dto(end->recv, "the receive");
        }
        EXPECT(write(out, &context, sizeof context) == sizeof context, "the peer has gone");
        await_notice(in);
    }
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    expect_end(end);
    OK(dat_rmr_free(rmr));
}

static void be_peer(struct end *end, bool late, int out, int in)
{
    struct introduction owner;
    DAT_RMR_CONTEXT context;

    serve_one(end, out);
    EXPECT(read(in, &owner, sizeof owner) == sizeof owner, "the owner has gone");
    for (int round = 0; round < ROUNDS; round++) {
        if (late) {
            await_notice(in);
            post_receives(end, 1, WINDOW_LENGTH);
            expect_dto(end->recv, "the receive");
        } else {
            EXPECT(read(in, &context, sizeof context) == sizeof context, "the owner has gone");
            post_send(end, context);
            expect_dto(end->request, "a send that invalidates");
            /*
             * The owner answers the read after it has carried out the invalidation, because it
             * serves requests in order.
             */
            read_window(end, owner.address, owner.rmr_context);
            notify(out);
        }
        EXPECT(read(in, &context, sizeof context) == sizeof context, "the owner has gone");
        read_window(end, owner.address, context);
        notify(out);
    }
    expect_end(end);
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    bool late = strcmp(how, "late") == 0, flushed = strcmp(how, "flushed") == 0;
    int to_peer[2], to_owner[2];
    struct end end;
    pid_t peer;

    EXPECT(late || flushed || strcmp(how, "invalidated") == 0,
           "usage: binds late|flushed|invalidated");
    signal(SIGPIPE, SIG_IGN);
    EXPECT(pipe(to_peer) == 0 && pipe(to_owner) == 0, "pipe: %s", strerror(errno));
    peer = fork();
    EXPECT(peer >= 0, "fork: %s", strerror(errno));
    /* Each process keeps only its own ends, so that it notices the end of its peer. */
    close(peer == 0 ? to_peer[1] : to_peer[0]);
    close(peer == 0 ? to_owner[0] : to_owner[1]);
    open_for_binds(&end, flushed ? QUEUE_LENGTH : 16);
    if (flushed) {
        if (peer == 0) {
            serve_one(&end, to_owner[1]);
            expect_end(&end);
        } else {
            connect_to(&end, to_owner[0]);
            flush_many_binds(&end);
        }
    } else if (peer == 0) {
        be_peer(&end, late, to_owner[1], to_peer[0]);
    } else {
        struct introduction owner = {.address = (DAT_VADDR)(uintptr_t)end.buffer,
                                     .rmr_context = end.rmr_context};
        EXPECT(write(to_peer[1], &owner, sizeof owner) == sizeof owner, "the peer has gone");
        be_owner(&end, late, to_peer[1], to_owner[0]);
    }
    end_close(&end);
    if (peer == 0)
        return 0;
    join(peer);
    puts("ok");
    return 0;
}
