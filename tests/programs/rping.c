/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The other side of rping (package rdmacm-utils), over DAT.
 *
 *   rping server PORT SIZE ROUNDS CONNECTIONS            reads the memory that the client offers,
 *                                                        and writes it back
 *   rping client ADDRESS PORT SIZE ROUNDS CONNECTIONS    offers pings, and checks what is written
 *                                                        back
 *
 * Connections come one after the other, each with ROUNDS rounds. A message has 16 octets: address,
 * key and length of memory to read or to write. A message of a server means only "go on". In a
 * round the client offers its source, the server reads it, the client offers its sink, and the
 * server writes there.
 */

#include "dat_test.h"

#include <endian.h>
#include <netdb.h>

enum { MESSAGE = 16, RECEIVED = 0, SENT = 64, SOURCE = 4096 };

struct message {
    uint64_t address;
    uint32_t key, size;
};

static void post_receive(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, RECEIVED, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void complete(DAT_EVD_HANDLE evd, size_t length, const char *what)
{
    DAT_EVENT event = wait_event(evd);
    DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT && dto->status == DAT_DTO_SUCCESS,
           "%s: status %d", what, dto->status);
    EXPECT(dto->transfered_length == length, "%s: %u octets", what,
           (unsigned)dto->transfered_length);
}

static void post_send(struct end *end, size_t offset, size_t size)
{
    struct message message = {
        .address = htobe64((uintptr_t)(end->buffer + offset)),
        .key = htobe32(end->rmr_context),
        .size = htobe32((uint32_t)size),
    };
    DAT_LMR_TRIPLET segment = local_segment(end, SENT, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    memcpy(end->buffer + SENT, &message, sizeof message);
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/*
 * Sends the peer the address of these octets, or only "go on" if `size` is 0. The caller has
 * already posted a receive for the peer's answer.
 */
static void send_when_ready(struct end *end, size_t offset, size_t size)
{
    post_send(end, offset, size);
    complete(end->request, MESSAGE, "send");
}

/*
 * Sends the last message. The peer disconnects when it has received it, and may not have
 * acknowledged it by then: the kernel's rxe acknowledges nothing once its queue pair is in error
 * (rxe_resp.c, do_complete). The peer's output shows whether the message arrived.
 */
static void send_last(struct end *end)
{
    DAT_EVENT event;
    DAT_DTO_COMPLETION_STATUS status;
    post_send(end, 0, 0);
    event = wait_event(end->request);
    status = event.event_data.dto_completion_event_data.status;
    EXPECT(status == DAT_DTO_SUCCESS || status == DAT_DTO_ERR_FLUSHED, "the last send: status %d",
           status);
}

/* Takes the next message. A receive for the message after it is posted first. */
static DAT_RMR_TRIPLET next_message(struct end *end)
{
    struct message message;
    complete(end->recv, MESSAGE, "receive");
    memcpy(&message, end->buffer + RECEIVED, sizeof message);
    post_receive(end);
    return (DAT_RMR_TRIPLET){
        .virtual_address = be64toh(message.address),
        .segment_length = be32toh(message.size),
        .rmr_context = be32toh(message.key),
    };
}

static void serve(struct end *end, size_t size, int rounds)
{
    DAT_DTO_COOKIE cookie = {.as_64 = 3};
    DAT_LMR_TRIPLET segment = local_segment(end, SOURCE, size);
    for (int round = 0; round < rounds; round++) {
        DAT_RMR_TRIPLET offered = next_message(end);
        EXPECT(offered.segment_length == size, "round %d: the peer offers %u octets", round,
               (unsigned)offered.segment_length);
        OK(dat_ep_post_rdma_read(end->ep, 1, &segment, cookie, &offered,
                                 DAT_COMPLETION_DEFAULT_FLAG));
        complete(end->request, size, "read");
        send_when_ready(end, 0, 0);
        offered = next_message(end);
        OK(dat_ep_post_rdma_write(end->ep, 1, &segment, cookie, &offered,
                                  DAT_COMPLETION_DEFAULT_FLAG));
        complete(end->request, size, "write");
        if (round + 1 < rounds)
            send_when_ready(end, 0, 0);
        else
            send_last(end);
    }
}

static void ping(struct end *end, size_t size, int rounds)
{
    char *source = end->buffer + SOURCE, *sink = source + size;
    for (int round = 0; round < rounds; round++) {
        /* rping's server prints the ping and writes back only a string. */
        for (size_t i = 0; i < size; i++)
            source[i] = (char)('A' + ((size_t)round + i) % 50);
        snprintf(source, size, "ping %d", round);
        source[strlen(source)] = ' ';
        source[size - 1] = 0;
        memset(sink, 0, size);
        send_when_ready(end, SOURCE, size);
        next_message(end);
        send_when_ready(end, SOURCE + size, size);
        next_message(end);
        EXPECT(memcmp(source, sink, size) == 0, "round %d came back as %.20s", round, sink);
    }
}

static void expect_disconnected(struct end *end)
{
    DAT_EVENT event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
}

static void flush(struct end *end)
{
    DAT_EVENT event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED,
           "a receive is not flushed");
}

int main(int argc, char **argv)
{
    bool server = argc == 6 && strcmp(argv[1], "server") == 0;
    struct addrinfo *found = NULL;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL port;
    struct end end;
    size_t size;
    int rounds, connections;

    EXPECT(server || argc == 7,
           "usage: rping server PORT SIZE ROUNDS CONNECTIONS | client ADDRESS ...");
    port = (DAT_CONN_QUAL)atoi(argv[argc - 4]);
    size = (size_t)atol(argv[argc - 3]);
    rounds = atoi(argv[argc - 2]);
    connections = atoi(argv[argc - 1]);
    end_open(&end, SOURCE + 2 * size, 4);
    if (server) {
        OK(dat_psp_create(end.ia, port, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
        puts("listening");
        fflush(stdout);
    } else {
        EXPECT(getaddrinfo(argv[2], NULL, NULL, &found) == 0, "getaddrinfo: %s", argv[2]);
    }
    for (int i = 0; i < connections; i++) {
        post_receive(&end);
        if (server) {
            accept_next(end.cr, end.ep, end.connect);
            serve(&end, size, rounds);
        } else {
            OK(dat_ep_connect(end.ep, (DAT_IA_ADDRESS_PTR)found->ai_addr, port, WAIT_LIMIT, 0, NULL,
                              DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
            wait_established(end.connect);
            ping(&end, size, rounds);
            OK(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
        }
        expect_disconnected(&end);
        flush(&end);
        OK(dat_ep_reset(end.ep));
    }
    if (server)
        OK(dat_psp_free(psp));
    else
        freeaddrinfo(found);
    end_close(&end);
    puts("ok");
    return 0;
}
