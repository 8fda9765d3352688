/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * echo_completions ROUNDS | SECONDSs: two clients have connections with one server, which sends
 * each message back. When a client gets an echo, it takes the completions that its request EVD has
 * by then, and posts the next message. The acknowledgement of a message leaves at the latest
 * directly behind its echo. The endpoint has slots for a few messages with an echo and without a
 * completion. If acknowledgements are kept back for longer than that, or take another way than the
 * echoes, a post is refused. The program then says when the next completion came.
 *
 * Each client sends ROUNDS messages, or (for example with 60s) sends messages for that time. It
 * prints how many completions it took late after the echo, and how late the slowest one was. These
 * numbers depend on the other work of the host, so they decide nothing.
 */

#include "dat_test.h"

enum { CLIENTS = 2, SLOTS = 4, LENGTH = 64 };

/* A completion that is taken longer than this after the echo, in seconds, is late. */
static const double LATE = 100e-6;

/* A client sends at least one message, and no more when both of these have passed. */
static DAT_UINT64 rounds;
static double seconds;

static void post_receive(struct end *end, DAT_EP_HANDLE ep, DAT_UINT64 client)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = client};
    OK(dat_ep_post_recv(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* A client's last message has no octets. */
static DAT_RETURN send_message(struct end *end, DAT_EP_HANDLE ep, DAT_UINT64 number,
                               DAT_UINT64 length)
{
    DAT_LMR_TRIPLET segment = local_segment(end, LENGTH, length);
    DAT_DTO_COOKIE cookie = {.as_64 = number};
    return dat_ep_post_send(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG);
}

static DAT_DTO_COMPLETION_EVENT_DATA success(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event->event_data.dto_completion_event_data;
    EXPECT(event->event_number == DAT_DTO_COMPLETION_EVENT, "event 0x%x", event->event_number);
    EXPECT(dto->status == DAT_DTO_SUCCESS, "a message failed: status %d", dto->status);
    return *dto;
}

/*
 * Sends back the messages of all clients, until each has sent its last one. Then disconnects from
 * all of them, so that no receive is flushed before.
 */
static void serve(struct end *end, int fd)
{
    struct introduction self = {free_port(), 0, 0};
    DAT_EP_ATTR attr = ep_attributes(2 * SLOTS);
    DAT_EP_HANDLE eps[CLIENTS];
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    OK(dat_psp_create(end->ia, self.port, end->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    for (DAT_UINT64 client = 0; client < CLIENTS; client++) {
        DAT_EP_HANDLE *ep = &eps[client];
        OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, ep));
        for (int i = 0; i < SLOTS; i++)
            post_receive(end, *ep, client);
        EXPECT(write(fd, &self, sizeof self) == sizeof self, "the client has gone");
        accept_next(end->cr, *ep, end->connect);
    }
    for (int clients = CLIENTS; clients > 0;) {
        event = wait_event(end->recv);
        DAT_DTO_COMPLETION_EVENT_DATA message = success(&event);
        DAT_UINT64 client = message.user_cookie.as_64;
        if (message.transfered_length == 0)
            clients--;
        else
            post_receive(end, eps[client], client);
        while (dat_evd_dequeue(end->request, &event) == DAT_SUCCESS)
            success(&event);
        OK(send_message(end, eps[client], 0, message.transfered_length));
    }
    for (int client = 0; client < CLIENTS; client++)
        OK(dat_ep_disconnect(eps[client], DAT_CLOSE_GRACEFUL_FLAG));
    for (int client = 0; client < CLIENTS; client++)
        wait_event(end->connect);
}

/* Ends the program, because a message was refused after its predecessor's echo had come. */
static void end_with_refusal(struct end *end, DAT_RETURN status, DAT_UINT64 posted,
                             DAT_UINT64 completed)
{
    double refused = now();
    DAT_EVENT event = wait_event(end->request);

    success(&event);
    EXPECT(0, "message %lu was refused when %lu sends had completed: %s. One more completed within "
           "%.1f us",
           (unsigned long)posted, (unsigned long)completed, status_text(status),
           (now() - refused) * 1e6);
}

static void call(struct end *end, int fd)
{
    double echoed[SLOTS], slowest = 0, end_time;
    DAT_UINT64 posted = 0, completed = 0, late = 0;
    DAT_EVENT event;
    bool is_last = false;

    for (int i = 0; i < SLOTS; i++)
        post_receive(end, end->ep, 0);
    connect_to(end, fd);
    end_time = now() + seconds;
    OK(send_message(end, end->ep, posted++, LENGTH));
    for (DAT_UINT64 echoes = 0; echoes < posted; echoes++) {
        event = wait_event(end->recv);
        success(&event);
        echoed[echoes % SLOTS] = now();
        while (dat_evd_dequeue(end->request, &event) == DAT_SUCCESS) {
            EXPECT(success(&event).user_cookie.as_64 == completed, "a completion is out of order");
            double delay = completed <= echoes ? now() - echoed[completed % SLOTS] : 0;
            late += delay > LATE;
            slowest = delay > slowest ? delay : slowest;
            completed++;
        }
        if (is_last)
            break;
        post_receive(end, end->ep, 0);
        is_last = posted + 1 >= rounds && echoed[echoes % SLOTS] >= end_time;
        DAT_RETURN status = send_message(end, end->ep, posted, is_last ? 0 : LENGTH);
        if (status != DAT_SUCCESS)
            end_with_refusal(end, status, posted, completed);
        posted++;
    }
    printf("%lu of %lu completions (%.4f %%) came more than %.0f us after the echo, the slowest "
           "%.1f us\n",
           (unsigned long)late, (unsigned long)completed, 100.0 * (double)late / (double)completed,
           LATE * 1e6, slowest * 1e6);
    wait_event(end->connect);
}

int main(int argc, char **argv)
{
    int pipe_ends[2];
    pid_t clients[CLIENTS];
    struct end end;
    char *unit = "";

    if (argc == 2)
        rounds = strtoul(argv[1], &unit, 10);
    EXPECT(argc == 2 && rounds > 0 && (*unit == 0 || strcmp(unit, "s") == 0),
           "usage: echo_completions ROUNDS | SECONDSs");
    if (*unit != 0) {
        seconds = (double)rounds;
        rounds = 0;
    }
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = fork();
        EXPECT(clients[i] >= 0, "fork: %s", strerror(errno));
        if (clients[i] == 0) {
            end_open(&end, (size_t)2 * LENGTH, SLOTS);
            call(&end, pipe_ends[0]);
            return 0;
        }
    }
    end_open(&end, (size_t)2 * LENGTH, 2 * SLOTS * CLIENTS);
    serve(&end, pipe_ends[1]);
    for (int i = 0; i < CLIENTS; i++)
        join(clients[i]);
    puts("ok");
    return 0;
}
