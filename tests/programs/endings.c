/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How a connection is refused, or made and ended, between two programs that may have different DAT libraries.
 *
 *   endings server PORT CASE
 *   endings client ADDRESS PORT CASE
 *
 *   reject          the server refuses; the client is told so, with the server's private data
 *   reject_mute     the same, and the client is told no more than that it is refused
 *   client_leaves   private data go both ways, a message each way; then this side disconnects
 *   server_leaves
 *   client_dies     the same; then this side is killed
 *   server_dies
 *   client_dies_busy  the same, while the other side goes on sending
 *   server_dies_busy
 *   ..._async       of those that die: the other side's provider may tell of it by an asynchronous error
 */

#include "dat_test.h"

#include <netdb.h>

enum { MESSAGE = 64, DTOS = 4 };

static char request[] = "let me in", refusal[] = "not today", acceptance[] = "come in";

static void expect_data(const char *what, const void *data, DAT_COUNT size, const char *expected)
{
    EXPECT((size_t)size >= strlen(expected) && memcmp(data, expected, strlen(expected)) == 0, "%s: %d octets, %.*s", what,
           size, size, (const char *)data);
}

static void one_message_each_way(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, MESSAGE, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    DAT_EVENT event;
    memset(end->buffer + MESSAGE, 'm', MESSAGE);
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(end->request);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "the message is not sent");
    event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "no message comes");
    EXPECT(memcmp(end->buffer, end->buffer + MESSAGE, MESSAGE) == 0, "another message");
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
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "no further message comes");
}

/* Until one fails, or may no longer be posted. */
static void go_on_sending(struct end *end)
{
    DAT_EVENT event;
    do {
        /* So that those before the end find receives. */
        usleep(400 * 1000);
        if (post_send(end) != DAT_SUCCESS)
            return;
        event = wait_event(end->request);
    } while (event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
}

/* Whether this side, "client" or "server", comes to its end. */
static bool is_ours(const char *role, const char *ending)
{
    return strncmp(ending, role, strlen(role)) == 0;
}

/* Before anything can come: the side that ends has more messages to receive, and one receive that is left. */
static void prepare(struct end *end, const char *role, const char *ending)
{
    for (int i = 0; i < (is_ours(role, ending) ? DTOS : 1); i++)
        post_receive(end);
}

/*
 * The connection is over, and its consumer is told. Of a death over siw, OFED's provider sometimes tells by an asynchronous error alone:
 * where the kernel was still at work on the message that the peer had received when it died. An ending "_async" takes that, too.
 */
static void expect_the_end(struct end *end, const char *ending)
{
    bool dies = strstr(ending, "_dies") != NULL, async = strstr(ending, "_async") != NULL;
    DAT_RETURN status = DAT_TIMEOUT_EXPIRED;
    DAT_EVENT event;
    DAT_COUNT more;

    for (int i = 0; i < PATIENCE_SECONDS && DAT_GET_TYPE(status) == DAT_TIMEOUT_EXPIRED; i++) {
        status = dat_evd_wait(end->connect, SECOND, 1, &event, &more);
        if (status == DAT_SUCCESS) {
            EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
                       (dies && event.event_number == DAT_CONNECTION_EVENT_BROKEN),
                   "event 0x%x at the end", event.event_number);
        } else if (async && dat_evd_dequeue(end->async, &event) == DAT_SUCCESS) {
            EXPECT(event.event_number == DAT_ASYNC_ERROR_EP_BROKEN, "event 0x%x", event.event_number);
            status = DAT_SUCCESS;
        }
    }
    EXPECT(status == DAT_SUCCESS, "no event on end->connect within %d s: %s", PATIENCE_SECONDS, status_text(status));
}

static void come_to_the_end(struct end *end, const char *role, const char *ending)
{
    bool ours = is_ours(role, ending), dies = strstr(ending, "_dies") != NULL;
    bool busy = strstr(ending, "_busy") != NULL;
    DAT_EVENT event;

    one_message_each_way(end);
    if (ours) {
        /* That it has had its message is what the other side says with another one; a busy one goes on then. */
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
            go_on_sending(end);
    }
    expect_the_end(end, ending);
    event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED, "the last receive is not flushed");
}

static void serve(struct end *end, const char *ending)
{
    DAT_EVENT event = wait_event(end->cr);
    DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;
    DAT_CR_PARAM param;

    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "no request: event 0x%x", event.event_number);
    OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
    expect_data("request", param.private_data, param.private_data_size, request);
    if (strncmp(ending, "reject", 6) == 0) {
        OK(dat_cr_reject(cr, sizeof refusal, refusal));
        return;
    }
    prepare(end, "server", ending);
    OK(dat_cr_accept(cr, end->ep, sizeof acceptance, acceptance));
    wait_established(end->connect);
    come_to_the_end(end, "server", ending);
}

static void call(struct end *end, const char *ending, const char *address, DAT_CONN_QUAL port)
{
    DAT_CONNECTION_EVENT_DATA *data;
    struct addrinfo *found;
    DAT_EVENT event;

    EXPECT(getaddrinfo(address, NULL, NULL, &found) == 0, "no address: %s", address);
    if (strncmp(ending, "reject", 6) != 0)
        prepare(end, "client", ending);
    OK(dat_ep_connect(end->ep, (DAT_IA_ADDRESS_PTR)found->ai_addr, port, PATIENCE, sizeof request, request,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    freeaddrinfo(found);
    event = wait_event(end->connect);
    data = &event.event_data.connect_event_data;
    if (strcmp(ending, "reject_mute") == 0) {
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED, "event 0x%x", event.event_number);
    } else if (strcmp(ending, "reject") == 0) {
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED, "event 0x%x", event.event_number);
        expect_data("refusal", data->private_data, data->private_data_size, refusal);
    } else {
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED, "event 0x%x", event.event_number);
        expect_data("acceptance", data->private_data, data->private_data_size, acceptance);
        come_to_the_end(end, "client", ending);
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
    /* What other libraries think is left of all this is theirs to say. */
    dat_ia_close(end.ia, DAT_CLOSE_ABRUPT_FLAG);
    puts("ok");
    return 0;
}
