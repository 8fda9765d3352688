/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The other side of udaddy (package rdmacm-utils), over DAT.
 *
 *   udaddy server PORT SIZE COUNT             receives datagrams, and sends as many back
 *   udaddy client ADDRESS PORT SIZE COUNT     sends datagrams, and receives as many
 *
 * The immediate data of a datagram are the number of the sender's queue pair, in network byte
 * order. udaddy learns the number only from there, and so does the server of this program.
 */

#include "dat_test.h"

#include <dat2/dat_ib_extensions.h>
#include <endian.h>
#include <netdb.h>

enum { HEADER = 40, SENT = 0, RECEIVED = 4096 };

static DAT_IB_EXTENSION_EVENT_DATA *extension(DAT_EVENT *event)
{
    return (DAT_IB_EXTENSION_EVENT_DATA *)event->event_extension_data;
}

static DAT_EP_HANDLE datagram_endpoint(struct end *end, size_t size, int count)
{
    DAT_EP_ATTR attributes = ep_attributes(count);
    DAT_EP_HANDLE ep;
    attributes.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
    attributes.max_message_size = size;
    attributes.max_rdma_read_in = attributes.max_rdma_read_out = 0;
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attributes, &ep));
    for (int number = 0; number < count; number++) {
        DAT_LMR_TRIPLET room = local_segment(end, RECEIVED + number * (HEADER + size), HEADER + size);
        DAT_DTO_COOKIE cookie = {.as_64 = number};
        OK(dat_ib_post_recv_ud(ep, 1, &room, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
    return ep;
}

/* Takes the event of a peer's queue pair, and returns it. */
static DAT_IB_EXTENSION_EVENT_DATA wait_peer(DAT_EVD_HANDLE evd, DAT_IB_EXT_TYPE type)
{
    DAT_EVENT event = wait_event(evd);
    EXPECT(event.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
           "no peer: event 0x%x", event.event_number);
    EXPECT(extension(&event)->type == type, "extension type %d", extension(&event)->type);
    return *extension(&event);
}

/* Receives datagrams, and returns the number of the sender's queue pair. */
static uint32_t receive(struct end *end, size_t size, int count)
{
    uint32_t sender = 0;
    for (int number = 0; number < count; number++) {
        DAT_EVENT event = wait_event(end->recv);
        DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        EXPECT(event.event_number == (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT && dto->status == DAT_DTO_SUCCESS,
               "receive: status %d", dto->status);
        EXPECT(dto->operation == (DAT_DTOS)DAT_IB_DTO_RECV_UD_IMMED, "operation %d", dto->operation);
        EXPECT(dto->transfered_length == HEADER + size, "%u octets", (unsigned)dto->transfered_length);
        EXPECT(dto->user_cookie.as_64 == (DAT_UINT64)number, "the receives complete in another order");
        sender = be32toh(extension(&event)->val.immed.data);
    }
    return sender;
}

static void send_all(struct end *end, DAT_EP_HANDLE ep, DAT_IB_ADDR_HANDLE *peer, uint32_t own_qpn, size_t size,
                     int count)
{
    DAT_LMR_TRIPLET data = local_segment(end, SENT, size);
    DAT_DTO_COOKIE cookie = {.as_64 = 77};
    for (int number = 0; number < count; number++)
        OK(dat_opendat_post_send_ud_immed(ep, 1, &data, peer, cookie, htobe32(own_qpn), DAT_COMPLETION_DEFAULT_FLAG));
    for (int number = 0; number < count; number++) {
        DAT_EVENT event = wait_event(end->request);
        DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        EXPECT(dto->status == DAT_DTO_SUCCESS && dto->transfered_length == size, "send: status %d", dto->status);
    }
}

int main(int argc, char **argv)
{
    bool serves = argc == 5 && strcmp(argv[1], "server") == 0;
    EXPECT(serves || (argc == 6 && strcmp(argv[1], "client") == 0), "see the comment in the source");
    char **numbers = argv + (serves ? 2 : 3);
    DAT_CONN_QUAL port = strtoul(numbers[0], NULL, 10);
    size_t size = strtoul(numbers[1], NULL, 10);
    int count = atoi(numbers[2]);
    DAT_IB_EXTENSION_EVENT_DATA peer;
    struct end end;
    end_open(&end, RECEIVED + count * (HEADER + size), count);
    DAT_EP_HANDLE ep = datagram_endpoint(&end, size, count);

    if (serves) {
        DAT_PSP_HANDLE psp;
        OK(dat_psp_create(end.ia, port, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
        puts("listening");
        fflush(stdout);
        DAT_EVENT event = wait_event(end.cr);
        EXPECT(event.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_REQUEST_EVENT, "event 0x%x",
               event.event_number);
        OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
        peer = wait_peer(end.connect, DAT_IB_UD_PASSIVE_REMOTE_AH);
        EXPECT(peer.remote_ah.qpn == 0, "udaddy has told its queue pair: %u", peer.remote_ah.qpn);
        peer.remote_ah.qpn = receive(&end, size, count);
        send_all(&end, ep, &peer.remote_ah, peer.val.immed.data, size, count);
        OK(dat_psp_free(psp));
    } else {
        struct addrinfo *found;
        EXPECT(getaddrinfo(argv[2], NULL, NULL, &found) == 0, "%s: not an address", argv[2]);
        OK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)found->ai_addr, port, WAIT_LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
                          DAT_CONNECT_DEFAULT_FLAG));
        peer = wait_peer(end.connect, DAT_IB_UD_REMOTE_AH);
        send_all(&end, ep, &peer.remote_ah, peer.val.immed.data, size, count);
        receive(&end, size, count);
        freeaddrinfo(found);
    }
    OK(dat_ep_free(ep));
    end_close(&end);
    puts("ok");
    return 0;
}
