/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One endpoint for datagrams finds out the addresses of 1,000 endpoints of another process, and
 * sends each of them a datagram. The process prints the memory that malloc accounts to one peer,
 * which is at most MAX_BYTES.
 */

#include "usage.h"

#include <dat2/dat_ib_extensions.h>

enum {
    PEERS = 1000,
    BURST = 50, /* softroce keeps up to 64 requests of an address that nobody has answered */
    HEADER = 40,
    LENGTH = 64,
    MAX_BYTES = 256,
};
/* The buffer holds a message to send, and a received datagram of each endpoint. */
#define ROOM(n) ((size_t)(n + 1) * (HEADER + LENGTH))

static DAT_EP_HANDLE eps[PEERS];
static DAT_IB_ADDR_HANDLE peers[PEERS];

static DAT_IB_EXTENSION_EVENT_DATA *extension(DAT_EVENT *event)
{
    return (DAT_IB_EXTENSION_EVENT_DATA *)event->event_extension_data;
}

static DAT_EP_HANDLE datagram_endpoint(struct end *end)
{
    DAT_EP_ATTR attributes = ep_attributes(1);
    DAT_EP_HANDLE ep;
    attributes.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
    attributes.max_message_size = LENGTH;
    attributes.max_rdma_read_in = attributes.max_rdma_read_out = 0;
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attributes, &ep));
    return ep;
}

/* Takes the event of a peer's queue pair, and keeps the address of this peer. */
static void take_peer(struct end *end, DAT_EP_HANDLE ep, DAT_IB_EXT_TYPE type)
{
    DAT_EVENT event = wait_event(end->connect);
    int n;
    EXPECT(event.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
           "no peer: event 0x%x", event.event_number);
    EXPECT(extension(&event)->type == type, "extension type %d", extension(&event)->type);
    memcpy(&n, event.event_data.connect_event_data.private_data, sizeof n);
    EXPECT(n >= 0 && n < PEERS && !peers[n].ah, "unexpected number %d", n);
    peers[n] = extension(&event)->remote_ah;
    if (!ep)
        ep = event.event_data.connect_event_data.ep_handle;
    OK(dat_ib_ud_cm_free(ep, extension(&event)->context.as_ptr));
}

/* Answers each request with another endpoint, and receives a datagram at each of them. */
static void serve(struct end *end, int fd)
{
    struct introduction self = {free_port(), 0, 0};
    DAT_PSP_HANDLE psp;

    for (int n = 0; n < PEERS; n++) {
        DAT_LMR_TRIPLET room = local_segment(end, ROOM(n), HEADER + LENGTH);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)n};
        eps[n] = datagram_endpoint(end);
        OK(dat_ib_post_recv_ud(eps[n], 1, &room, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
    OK(dat_psp_create(end->ia, self.port, end->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    EXPECT(write(fd, &self, sizeof self) == sizeof self, "the peer has gone");
    for (int i = 0; i < PEERS; i++) {
        DAT_EVENT event = wait_event(end->cr);
        DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;
        DAT_CR_PARAM param;
        int n;
        EXPECT(event.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_REQUEST_EVENT,
               "no request: event 0x%x", event.event_number);
        OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
        memcpy(&n, param.private_data, sizeof n);
        EXPECT(n >= 0 && n < PEERS, "unexpected request %d", n);
        OK(dat_cr_accept(cr, eps[n], sizeof n, &n));
        take_peer(end, NULL, DAT_IB_UD_PASSIVE_REMOTE_AH);
    }
    OK(dat_psp_free(psp));
    for (int i = 0; i < PEERS; i++) {
        DAT_EVENT event = wait_event(end->recv);
        const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        int n = (int)dto->user_cookie.as_64, number;
        EXPECT(dto->status == DAT_DTO_SUCCESS && dto->ep_handle == eps[n], "receive %d: status %d",
               n, dto->status);
        memcpy(&number, end->buffer + ROOM(n) + HEADER, sizeof number);
        EXPECT(number == n, "endpoint %d has the datagram for %d", n, number);
    }
    for (int n = 0; n < PEERS; n++)
        OK(dat_ep_free(eps[n]));
}

static void send_to(struct end *end, DAT_EP_HANDLE ep, int n)
{
    DAT_LMR_TRIPLET data = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)n};
    DAT_EVENT event;
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    memcpy(end->buffer, &n, sizeof n);
    OK(dat_ib_post_send_ud(ep, 1, &data, &peers[n], cookie, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(end->request);
    EXPECT(dto->status == DAT_DTO_SUCCESS && dto->user_cookie.as_64 == (DAT_UINT64)n,
           "send %d: status %d", n, dto->status);
}

static void report(const char *what, long before)
{
    long each = (bytes_in_use() - before) / PEERS;
    printf("%ld bytes for each peer that was %s\n", each, what);
    EXPECT(each <= MAX_BYTES, "a peer takes %ld bytes", each);
}

static void call(struct end *end, int fd)
{
    struct sockaddr_storage address = peer_address();
    DAT_EP_HANDLE ep = datagram_endpoint(end);
    struct introduction peer;
    long before;

    EXPECT(read(fd, &peer, sizeof peer) == sizeof peer, "the peer has not sent its port");
    before = bytes_in_use();
    for (int n = 0; n < PEERS; n++) {
        OK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&address, peer.port, WAIT_LIMIT, sizeof n, &n,
                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
        if (n % BURST == BURST - 1)
            for (int i = 0; i < BURST; i++)
                take_peer(end, ep, DAT_IB_UD_REMOTE_AH);
    }
    report("known", before);
    for (int n = 0; n < PEERS; n++)
        send_to(end, ep, n);
    report("sent to", before);
    for (int n = 0; n < PEERS; n++)
        OK(dat_ib_ud_ah_free(ep, &peers[n]));
    OK(dat_ep_free(ep));
}

int main(int argc, char **argv)
{
    int pipe_ends[2];
    struct end end;
    pid_t peer_process;

    (void)argc;
    start_without_caches(argv);
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    peer_process = fork();
    EXPECT(peer_process >= 0, "fork: %s", strerror(errno));
    end_open(&end, ROOM(PEERS), PEERS);
    OK(dat_evd_resize(end.connect, PEERS));
    OK(dat_evd_resize(end.cr, PEERS));
    if (peer_process == 0)
        serve(&end, pipe_ends[1]);
    else
        call(&end, pipe_ends[0]);
    end_close(&end);
    if (peer_process == 0)
        return 0;
    join(peer_process);
    puts("ok");
    return 0;
}
