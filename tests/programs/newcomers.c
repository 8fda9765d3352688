/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Newcomers: every 100 ms a client connects, sends a message, receives it back and disconnects,
 * until the program is killed. The client prints a line for each connection: `newcomer 1.23 ms`, or
 * `refused` and the event.
 *
 *   newcomers PORT ENDPOINTS   (the address is in OPENDAT_TEST_ADDRESS)
 *
 * The server accepts every request at once, with one of ENDPOINTS endpoints. An attacker's requests
 * may occupy some of the endpoints without ever being established.
 */

#include "dat_test.h"

#include <sys/prctl.h>

enum {
    LENGTH = 64,
    MAX_SERVER_ENDPOINTS = 256,
};

static void drain(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS)
        ;
}

/* ---- the server ------------------------------------------------------------------------------ */

/* An endpoint of the server. Each endpoint has its own message in the buffer. */
struct server_endpoint {
    DAT_EP_HANDLE ep;
    /*
     * The number of connections that have used the endpoint. A completion of an earlier connection
     * is ignored.
     */
    uint64_t uses;
    bool in_use;
};

static struct end server;
static struct server_endpoint endpoints[MAX_SERVER_ENDPOINTS];
static int endpoint_count;

static DAT_DTO_COOKIE cookie_of(int i)
{
    return (DAT_DTO_COOKIE){.as_64 = endpoints[i].uses * MAX_SERVER_ENDPOINTS + (uint64_t)i};
}

static void reset_server_endpoint(int i)
{
    OK(dat_ep_reset(endpoints[i].ep));
    endpoints[i].in_use = false;
    endpoints[i].uses++;
}

static void accept_request(DAT_CR_HANDLE cr)
{
    DAT_LMR_TRIPLET segment;
    int i = 0;
    while (i < endpoint_count && endpoints[i].in_use)
        i++;
    if (i == endpoint_count) {
        printf("refused: all endpoints of the server are in use\n");
        dat_cr_reject(cr, 0, NULL);
        return;
    }
    endpoints[i].in_use = true;
    segment = local_segment(&server, (size_t)i * LENGTH, LENGTH);
    OK(dat_ep_post_recv(endpoints[i].ep, 1, &segment, cookie_of(i), DAT_COMPLETION_DEFAULT_FLAG));
    if (dat_cr_accept(cr, endpoints[i].ep, 0, NULL) != DAT_SUCCESS)
        reset_server_endpoint(i);
}

static void handle_connection_event(const DAT_EVENT *event)
{
    DAT_EP_HANDLE ep = event->event_data.connect_event_data.ep_handle;
    if (event->event_number == DAT_CONNECTION_EVENT_ESTABLISHED)
        return;
    for (int i = 0; i < endpoint_count; i++)
        if (endpoints[i].ep == ep && endpoints[i].in_use)
            reset_server_endpoint(i);
}

/* Sends back what an endpoint has received. */
static void handle_receive(const DAT_DTO_COMPLETION_EVENT_DATA *completion)
{
    int i = (int)(completion->user_cookie.as_64 % MAX_SERVER_ENDPOINTS);
    DAT_LMR_TRIPLET segment = local_segment(&server, (size_t)i * LENGTH, LENGTH);
    if (completion->status == DAT_DTO_SUCCESS &&
        completion->user_cookie.as_64 == cookie_of(i).as_64)
        dat_ep_post_send(endpoints[i].ep, 1, &segment, cookie_of(i), DAT_COMPLETION_DEFAULT_FLAG);
}

/* Sends back what each client sends. */
static void serve(DAT_CONN_QUAL port, int ready)
{
    enum { EVENTS = 4 * MAX_SERVER_ENDPOINTS, REQUESTS = 64 };
    DAT_EP_ATTR attr = ep_attributes(2);
    DAT_CNO_HANDLE cno;
    DAT_PSP_HANDLE psp;
    DAT_EVD_HANDLE recv, request, connect, cr, evd;
    DAT_EVENT event;
    end_open(&server, MAX_SERVER_ENDPOINTS * LENGTH, 2);
    OK(dat_cno_create(server.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_evd_create(server.ia, EVENTS, cno, DAT_EVD_DTO_FLAG, &recv));
    OK(dat_evd_create(server.ia, EVENTS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &request));
    OK(dat_evd_create(server.ia, EVENTS, cno, DAT_EVD_CONNECTION_FLAG, &connect));
    OK(dat_evd_create(server.ia, REQUESTS, cno, DAT_EVD_CR_FLAG, &cr));
    for (int i = 0; i < endpoint_count; i++)
        OK(dat_ep_create(server.ia, server.pz, recv, request, connect, &attr, &endpoints[i].ep));
    OK(dat_psp_create(server.ia, port, cr, DAT_PSP_CONSUMER_FLAG, &psp));
    EXPECT(write(ready, "x", 1) == 1, "the parent process has ended");
    for (;;) {
        /*
         * Connection events come first. Even if requests never pause, endpoints of ended
         * connections become free.
         */
        if (dat_evd_dequeue(connect, &event) == DAT_SUCCESS)
            handle_connection_event(&event);
        else if (dat_evd_dequeue(recv, &event) == DAT_SUCCESS)
            handle_receive(&event.event_data.dto_completion_event_data);
        else if (dat_evd_dequeue(cr, &event) == DAT_SUCCESS)
            accept_request(event.event_data.cr_arrival_event_data.cr_handle);
        else
            OK(dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &evd));
        drain(request);
    }
}

/* ---- the client ------------------------------------------------------------------------------ */

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
    DAT_CONN_QUAL port = argc == 3 ? (DAT_CONN_QUAL)atoi(argv[1]) : 0;
    struct timespec next;
    struct end end;
    int ready[2];
    char octet;

    endpoint_count = argc == 3 ? atoi(argv[2]) : 0;
    EXPECT(port > 0 && endpoint_count > 0 && endpoint_count <= MAX_SERVER_ENDPOINTS,
           "usage: newcomers PORT ENDPOINTS");
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
