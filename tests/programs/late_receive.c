/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs that post their first receive after they have dequeued ESTABLISHED and the peer's
 * message has arrived.
 *
 *   late_receive own       the receive is posted to the endpoint's own queue
 *   late_receive shared    the receive is posted to a shared receive queue
 */

#include "dat_test.h"

enum { SIZE = 64, MESSAGES = 16 };

static void notify(int fd)
{
    EXPECT(write(fd, "x", 1) == 1, "the other process has gone");
}

static void await_notice(int fd)
{
    char c;
    EXPECT(read(fd, &c, 1) == 1, "the other process has gone");
}

static void use_srq(struct end *end, DAT_SRQ_HANDLE *srq)
{
    DAT_SRQ_ATTR queue = {.max_recv_dtos = MESSAGES, .max_recv_iov = 1};
    DAT_EP_ATTR attr = ep_attributes(MESSAGES);
    OK(dat_srq_create(end->ia, end->pz, &queue, srq));
    OK(dat_ep_free(end->ep));
    OK(dat_ep_create_with_srq(end->ia, end->pz, end->recv, end->request, end->connect, *srq, &attr,
                              &end->ep));
}

static void send_all(struct end *end, int notify_fd, char first_octet)
{
    for (int i = 0; i < MESSAGES; i++) {
        size_t at = (size_t)i * SIZE;
        DAT_LMR_TRIPLET local = local_segment(end, at, SIZE);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)i};
        memset(end->buffer + at, first_octet + i, SIZE);
        OK(dat_ep_post_send(end->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        /*
         * If a request is posted alone, it has left when the post returns, and it is in the peer's
         * socket.
         */
        if (i == 0)
            notify(notify_fd);
    }
}

static void expect_sent(struct end *end)
{
    for (int i = 0; i < MESSAGES; i++) {
        DAT_EVENT event = wait_event(end->request);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "send %d: status %d", i, event.event_data.dto_completion_event_data.status);
    }
}

static void receive_all(struct end *end, DAT_SRQ_HANDLE srq, char first_octet)
{
    DAT_EVENT event;
    char *from = end->buffer + MESSAGES * SIZE;
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->connect, &event)) == DAT_QUEUE_EMPTY,
           "event 0x%x before any receive", event.event_number);
    for (int i = 0; i < MESSAGES; i++) {
        DAT_LMR_TRIPLET local = local_segment(end, MESSAGES * SIZE, SIZE);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)i};
        if (srq != DAT_HANDLE_NULL)
            OK(dat_srq_post_recv(srq, 1, &local, cookie));
        else
            OK(dat_ep_post_recv(end->ep, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        event = wait_event(end->recv);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "receive %d: status %d", i, event.event_data.dto_completion_event_data.status);
        EXPECT(event.event_data.dto_completion_event_data.user_cookie.as_64 == (DAT_UINT64)i,
               "the receives complete out of order");
        EXPECT(from[0] == first_octet + i && from[SIZE - 1] == first_octet + i,
               "message %d holds %d", i, from[0]);
    }
}

int main(int argc, char **argv)
{
    bool shared = argc == 2 && strcmp(argv[1], "shared") == 0;
    int to_client[2], to_server[2];
    struct end end;
    DAT_SRQ_HANDLE srq = DAT_HANDLE_NULL;
    DAT_EVENT event;
    pid_t server;

    EXPECT(shared || (argc == 2 && strcmp(argv[1], "own") == 0), "usage: late_receive own|shared");
    EXPECT(pipe(to_client) == 0 && pipe(to_server) == 0, "pipe: %s", strerror(errno));
    server = fork();
    EXPECT(server >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096, MESSAGES);
    if (shared)
        use_srq(&end, &srq);
    if (server == 0) {
        serve_one(&end, to_client[1]);
        await_notice(to_server[0]);
        receive_all(&end, srq, 'A');
        /*
         * The other process now runs the same test: it posts late receives for the messages of this
         * process.
         */
        send_all(&end, to_client[1], 'a');
        expect_sent(&end);
    } else {
        connect_to(&end, to_client[0]);
        send_all(&end, to_server[1], 'A');
        expect_sent(&end);
        await_notice(to_client[0]);
        receive_all(&end, srq, 'a');
        OK(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
    }
    event = wait_event(end.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
    if (shared) {
        OK(dat_ep_free(end.ep));
        OK(dat_srq_free(srq));
        OK(dat_ep_create(end.ia, end.pz, end.recv, end.request, end.connect, NULL, &end.ep));
    }
    end_close(&end);
    if (server == 0)
        return 0;
    join(server);
    puts("ok");
    return 0;
}
