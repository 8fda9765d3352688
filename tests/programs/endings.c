/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tests how a connection is rejected, or made and ended, between two programs that may use
 * different DAT libraries.
 *
 *   endings server PORT CASE
 *   endings client ADDRESS PORT CASE
 *
 *   reject            the server rejects the request; the client receives the server's private data
 *   reject_mute       the server rejects the request; the client learns only that
 *   client_leaves     private data and a message go each way; then the client disconnects
 *   server_leaves     private data and a message go each way; then the server disconnects
 *   client_dies       private data and a message go each way; then the client is killed
 *   server_dies       private data and a message go each way; then the server is killed
 *   client_dies_busy  as client_dies, while the server goes on sending
 *   server_dies_busy  as server_dies, while the client goes on sending
 *   ..._async         a case with a death; the survivor's provider may report the death by an
 *                     asynchronous error
 */

#include "dat_test.h"

#include <netdb.h>

enum { MESSAGE = 64, DTOS = 4 };

static char request[] = "let me in", refusal[] = "not today", acceptance[] = "come in";

static void expect_data(const char *what, const void *data, DAT_COUNT size, const char *expected)
{
    EXPECT((size_t)size >= strlen(expected) && memcmp(data, expected, strlen(expected)) == 0,
           "%s: %d octets, %.*s", what, size, size, (const char *)data);
}

static void one_message_each_way(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, MESSAGE, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    DAT_EVENT event;
    memset(end->buffer + MESSAGE, 'm', MESSAGE);
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(end->request);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "the send failed");
    event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "the receive failed");
    EXPECT(memcmp(end->buffer, end->buffer + MESSAGE, MESSAGE) == 0,
           "the message has wrong contents");
}

static void post_receive(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static DAT_RETURN post_send(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, MESSAGE, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = 3};
    return dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG);
}

static void expect_message(struct end *end)
{
    DAT_EVENT event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "the second message was not received");
}

/* Sends until an operation fails or can no longer be posted. */
static void send_until_failure(struct end *end)
{
    DAT_EVENT event;
    do {
        /* The pause leaves the peer time to have receives for the messages before the end. */
        usleep(400 * 1000);
        if (post_send(end) != DAT_SUCCESS)
            return;
        event = wait_event(end->request);
    } while (event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
}

/* Returns whether this side, "client" or "server", is the one that ends. */
static bool is_ending_side(const char *role, const char *ending)
{
    return strncmp(ending, role, strlen(role)) == 0;
}

/*
 * Posts receives before a message can arrive. The side that ends the connection receives more
 * messages than the other side, and must have an outstanding receive at the end.
 */
static void prepare(struct end *end, const char *role, const char *ending)
{
    for (int i = 0; i < (is_ending_side(role, ending) ? DTOS : 1); i++)
        post_receive(end);
}

/*
 * Expects the event that reports the end of the connection. If the peer dies over siw while the
 * kernel still works on a message that the peer has received, OFED's provider sometimes reports the
 * death only by an asynchronous error. A case that ends in "_async" accepts this error, too.
 */
static void expect_the_end(struct end *end, const char *ending)
{
    bool dies = strstr(ending, "_dies") != NULL, async = strstr(ending, "_async") != NULL;
    DAT_RETURN status = DAT_TIMEOUT_EXPIRED;
    DAT_EVENT event;
    DAT_COUNT more;

    for (int i = 0; i < WAIT_LIMIT_SECONDS && DAT_GET_TYPE(status) == DAT_TIMEOUT_EXPIRED; i++) {
        status = dat_evd_wait(end->connect, SECOND, 1, &event, &more);
        if (status == DAT_SUCCESS) {
            EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
                       (dies && event.event_number == DAT_CONNECTION_EVENT_BROKEN),
                   "event 0x%x at the end", event.event_number);
        } else if (async && dat_evd_dequeue(end->async, &event) == DAT_SUCCESS) {
            EXPECT(event.event_number == DAT_ASYNC_ERROR_EP_BROKEN, "event 0x%x",
                   event.event_number);
            status = DAT_SUCCESS;
        }
    }
    EXPECT(status == DAT_SUCCESS, "no event on end->connect within %d s: %s", WAIT_LIMIT_SECONDS,
           status_text(status));
}

static void end_connection(struct end *end, const char *role, const char *ending)
{
    bool ours = is_ending_side(role, ending), dies = strstr(ending, "_dies") != NULL;
    bool busy = strstr(ending, "_busy") != NULL;
    DAT_EVENT event;

    one_message_each_way(end);
    if (ours) {
        /*
         * The other side sends another message as the answer to this side's message. If it is busy,
         * it then goes on sending.
         */
        expect_message(end);
        if (busy)
            expect_message(end);
        if (dies)
            kill(getpid(), SIGKILL);
        OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    } else {
        post_receive(end);
        OK(post_send(end));
        if (busy)
            send_until_failure(end);
    }
    expect_the_end(end, ending);
    event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED,
           "the last receive is not flushed");
}

static void serve(struct end *end, const char *ending)
{
    DAT_EVENT event = wait_event(end->cr);
    DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;
    DAT_CR_PARAM param;

    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "no request: event 0x%x",
           event.event_number);
    OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
    expect_data("request", param.private_data, param.private_data_size, request);
    if (strncmp(ending, "reject", 6) == 0) {
        OK(dat_cr_reject(cr, sizeof refusal, refusal));
        return;
    }
    prepare(end, "server", ending);
    OK(dat_cr_accept(cr, end->ep, sizeof acceptance, acceptance));
    wait_established(end->connect);
    end_connection(end, "server", ending);
}

static void call(struct end *end, const char *ending, const char *address, DAT_CONN_QUAL port)
{
    DAT_CONNECTION_EVENT_DATA *data;
    struct addrinfo *found;
    DAT_EVENT event;

    EXPECT(getaddrinfo(address, NULL, NULL, &found) == 0, "no address: %s", address);
    if (strncmp(ending, "reject", 6) != 0)
        prepare(end, "client", ending);
    OK(dat_ep_connect(end->ep, (DAT_IA_ADDRESS_PTR)found->ai_addr, port, WAIT_LIMIT, sizeof request,
                      request, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    freeaddrinfo(found);
    event = wait_event(end->connect);
    data = &event.event_data.connect_event_data;
    if (strcmp(ending, "reject_mute") == 0) {
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED, "event 0x%x",
               event.event_number);
    } else if (strcmp(ending, "reject") == 0) {
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED, "event 0x%x",
               event.event_number);
        expect_data("refusal", data->private_data, data->private_data_size, refusal);
    } else {
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED, "event 0x%x",
               event.event_number);
        expect_data("acceptance", data->private_data, data->private_data_size, acceptance);
        end_connection(end, "client", ending);
    }
}

int main(int argc, char **argv)
{
    bool server = argc == 4 && strcmp(argv[1], "server") == 0;
    DAT_CONN_QUAL port;
    struct end end;

    EXPECT(server || argc == 5, "usage: endings server PORT CASE | client ADDRESS PORT CASE");
    port = (DAT_CONN_QUAL)atoi(argv[argc - 2]);
    end_open(&end, (size_t)2 * MESSAGE, DTOS);
    if (server) {
        DAT_PSP_HANDLE psp;
        OK(dat_psp_create(end.ia, port, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
        puts("listening");
        fflush(stdout);
        serve(&end, argv[3]);
        OK(dat_psp_free(psp));
    } else {
        call(&end, argv[4], argv[2], port);
    }
    /*
     * The result is not checked, because other libraries may report objects that do not exist any
     * more.
     */
    dat_ia_close(end.ia, DAT_CLOSE_ABRUPT_FLAG);
    puts("ok");
    return 0;
}
