/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server that offers memory, and a client that writes to it, sends a message, and reads from it.
 *
 *   hello server [IA]             hello client ADDRESS [IA]
 *
 * docs/tutorial.md explains it.
 */

#include <arpa/inet.h>
#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ANCHOR: check */
#include <dat2/udat.h>

/* Every function returns a status; dat_strerror() returns its names. */
static void check(const char *what, DAT_RETURN answer)
{
    const char *major, *minor;
    if (answer == DAT_SUCCESS)
        return;
    dat_strerror(answer, &major, &minor);
    fprintf(stderr, "%s: %s %s\n", what, major, minor);
    exit(1);
}
/* ANCHOR_END: check */

enum { QUALIFIER = 7777, LIMIT = 10 * 1000000 /* microseconds */, SIZE = 64 };

/* ANCHOR: offer */
/* The server's private data in the accept: address and key of its memory, in network byte order. */
struct offer {
    uint64_t address;
    uint32_t key;
    uint32_t zero; /* fills the structure up, so that each octet that is sent is set */
};
/* ANCHOR_END: offer */

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE events;
static DAT_EP_HANDLE ep;
static char memory[SIZE];
static DAT_LMR_CONTEXT local_key;
static DAT_RMR_CONTEXT remote_key;

/* ANCHOR: open */
static void open_all(char *name)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_EVD_FLAGS streams = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG;
    DAT_REGION_DESCRIPTION region = {.for_va = memory};
    DAT_LMR_HANDLE lmr;
    DAT_VLEN size;
    DAT_VADDR address;

    check("dat_ia_open", dat_ia_open(name, 8, &async, &ia));
    check("dat_pz_create", dat_pz_create(ia, &pz));
    check("dat_evd_create", dat_evd_create(ia, 16, DAT_HANDLE_NULL, streams, &events));
    check("dat_lmr_create", dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, pz, DAT_MEM_PRIV_ALL_FLAG,
                                           DAT_VA_TYPE_VA, &lmr, &local_key, &remote_key, &size, &address));
    check("dat_ep_create", dat_ep_create(ia, pz, events, events, events, NULL, &ep));
}
/* ANCHOR_END: open */

/* ANCHOR: wait */
static DAT_EVENT wait_for(DAT_EVENT_NUMBER expected, DAT_TIMEOUT limit)
{
    DAT_EVENT event;
    DAT_COUNT more;
    check("dat_evd_wait", dat_evd_wait(events, limit, 1, &event, &more));
    if (event.event_number != expected) {
        bool refused = event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED;
        fprintf(stderr, "%s in place of %s%s\n",
                dat_event_name(event.event_number),
                dat_event_name(expected),
                refused ? ": no listener there; is the server running?" : "");
        exit(1);
    }
    if (expected == DAT_DTO_COMPLETION_EVENT && event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS) {
        fprintf(stderr, "completion status %d\n", event.event_data.dto_completion_event_data.status);
        exit(1);
    }
    return event;
}
/* ANCHOR_END: wait */

static DAT_LMR_TRIPLET part(size_t offset, size_t length)
{
    DAT_LMR_TRIPLET segment = {
        .virtual_address = (DAT_VADDR)(uintptr_t)(memory + offset),
        .segment_length = length,
        .lmr_context = local_key,
    };
    return segment;
}

/* ANCHOR: server */
static void serve(void)
{
    DAT_LMR_TRIPLET room = part(48, 16);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    struct offer offer = {htobe64((uintptr_t)memory), htonl(remote_key), 0};
    DAT_PSP_HANDLE psp;
    DAT_CR_HANDLE cr;
    DAT_CR_PARAM request;

    strcpy(memory + 32, "read me");
    check("dat_psp_create", dat_psp_create(ia, QUALIFIER, events, DAT_PSP_CONSUMER_FLAG, &psp));
    puts("listening");
    fflush(stdout);
    cr = wait_for(DAT_CONNECTION_REQUEST_EVENT, DAT_TIMEOUT_INFINITE).event_data.cr_arrival_event_data.cr_handle;
    check("dat_cr_query", dat_cr_query(cr, DAT_CR_FIELD_ALL, &request));
    printf("connection request: %.*s\n", (int)request.private_data_size, (char *)request.private_data);

    /* The receive must be posted before the message arrives. */
    check("dat_ep_post_recv", dat_ep_post_recv(ep, 1, &room, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    check("dat_cr_accept", dat_cr_accept(cr, ep, sizeof offer, &offer));
    wait_for(DAT_CONNECTION_EVENT_ESTABLISHED, LIMIT);

    wait_for(DAT_DTO_COMPLETION_EVENT, LIMIT);
    printf("a message: %s\n", memory + 48);
    printf("and this was written before it: %s\n", memory);
    wait_for(DAT_CONNECTION_EVENT_DISCONNECTED, LIMIT);
}
/* ANCHOR_END: server */

/* ANCHOR: client */
static void call(const char *address)
{
    struct sockaddr_in server = {.sin_family = AF_INET};
    DAT_LMR_TRIPLET data = part(0, 16), announcement = part(16, 16), answer = part(32, 16);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    DAT_RMR_TRIPLET remote = {.segment_length = 16};
    struct offer offer;
    DAT_EVENT event;

    if (inet_pton(AF_INET, address, &server.sin_addr) != 1) {
        fprintf(stderr, "%s is not an IPv4 address\n", address);
        exit(1);
    }
    check("dat_ep_connect", dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&server, QUALIFIER, LIMIT, 6, "hello",
                                           DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = wait_for(DAT_CONNECTION_EVENT_ESTABLISHED, LIMIT);
    /* The peer may send anything. */
    if (event.event_data.connect_event_data.private_data_size < (DAT_COUNT)sizeof offer) {
        fprintf(stderr, "the server's private data do not describe its memory\n");
        exit(1);
    }
    memcpy(&offer, event.event_data.connect_event_data.private_data, sizeof offer);
    remote.virtual_address = be64toh(offer.address);
    remote.rmr_context = ntohl(offer.key);

    /* Operations are performed in the order of their posts: the message arrives after the write. */
    strcpy(memory, "RDMA was here");
    strcpy(memory + 16, "look");
    check("dat_ep_post_rdma_write", dat_ep_post_rdma_write(ep, 1, &data, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    check("dat_ep_post_send", dat_ep_post_send(ep, 1, &announcement, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    remote.virtual_address += 32;
    check("dat_ep_post_rdma_read", dat_ep_post_rdma_read(ep, 1, &answer, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    for (int i = 0; i < 3; i++)
        wait_for(DAT_DTO_COMPLETION_EVENT, LIMIT);
    printf("the server's memory says: %s\n", memory + 32);

    check("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_for(DAT_CONNECTION_EVENT_DISCONNECTED, LIMIT);
}
/* ANCHOR_END: client */

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "server") == 0) {
        open_all(argc > 2 ? argv[2] : "tcp-emu");
        serve();
    } else if (argc >= 3 && strcmp(argv[1], "client") == 0) {
        open_all(argc > 3 ? argv[3] : "tcp-emu");
        call(argv[2]);
    } else {
        fprintf(stderr, "usage: hello server [IA] | hello client ADDRESS [IA]\n");
        return 2;
    }
    /* An abrupt close also frees all objects of the IA. */
    check("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    return 0;
}
