/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The server of a program of perftest (package perftest) that is called with -R, over DAT.
 *
 *   perftest PORT SIZE      serves one client, which sends messages of SIZE octets and receives
 *                           them back
 *
 * The client makes two connections. Over the first, the control connection, both sides send each
 * other the same records in the same order: versions, machines, and the address and key of memory.
 * This server sends each record back and needs to understand only where the address and the key
 * are. The second connection is for the measurement: messages that are sent back, or memory that
 * the client writes or reads.
 */

#include "dat_test.h"

#include <endian.h>
#include <stddef.h>

/*
 * perftest needs no more memory than REGION octets. RECEIVES is the maximum number of messages that
 * the client has under way.
 */
enum { REGION = 2 << 20, RECEIVES = 64, CONNECTIONS = 2, CONTROL_MESSAGE_BYTES = 64 };

/* A record of perftest that describes memory. All numbers are big-endian. */
struct memory_record {
    uint32_t lid, reads, qpn, psn, rkey;
    uint64_t address;
    uint8_t gid[16];
    uint32_t srqn, gid_index;
};

struct side {
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    /* The EVDs: everything that arrives, of all kinds, and the completions of sends. */
    DAT_EVD_HANDLE async, events, requests;
    DAT_EP_HANDLE eps[CONNECTIONS];
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT lmr_context;
    DAT_RMR_CONTEXT rmr_context;
    char *memory;
    size_t size;
    int connected, disconnected, memory_records, messages;
};

/*
 * Messages of the measurement arrive in the memory to which the client writes. Messages of the
 * control connection arrive behind that memory.
 */
static DAT_LMR_TRIPLET place(const struct side *side, DAT_EP_HANDLE ep)
{
    bool is_control = ep == side->eps[0];
    DAT_LMR_TRIPLET segment = {
        .virtual_address = (DAT_VADDR)(uintptr_t)(side->memory + (is_control ? REGION : 0)),
        .segment_length = (DAT_SEG_LENGTH)(is_control ? CONTROL_MESSAGE_BYTES : side->size),
        .lmr_context = side->lmr_context,
    };
    return segment;
}

static void post_receive(const struct side *side, DAT_EP_HANDLE ep)
{
    DAT_LMR_TRIPLET segment = place(side, ep);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    OK(dat_ep_post_recv(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void open_side(struct side *side)
{
    DAT_EVD_FLAGS all = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG;
    DAT_EP_ATTR attr = ep_attributes(RECEIVES);
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN registered_size;
    DAT_VADDR registered_address;

    EXPECT(posix_memalign((void **)&side->memory, 4096, REGION + 4096) == 0, "no memory");
    memset(side->memory, 0, REGION + 4096);
    side->async = DAT_HANDLE_NULL;
    OK(dat_ia_open(ia_under_test(), 8, &side->async, &side->ia));
    OK(dat_pz_create(side->ia, &side->pz));
    OK(dat_evd_create(side->ia, CONNECTIONS * (RECEIVES + 8), DAT_HANDLE_NULL, all, &side->events));
    OK(dat_evd_create(side->ia, RECEIVES, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &side->requests));
    memset(&region, 0, sizeof region);
    region.for_va = side->memory;
    OK(dat_lmr_create(side->ia, DAT_MEM_TYPE_VIRTUAL, region, REGION + 4096, side->pz,
                      DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &side->lmr, &side->lmr_context,
                      &side->rmr_context, &registered_size, &registered_address));
    for (int i = 0; i < CONNECTIONS; i++) {
        OK(dat_ep_create(side->ia, side->pz, side->events, side->requests, side->events, &attr,
                         &side->eps[i]));
        for (int n = 0; n < RECEIVES; n++)
            post_receive(side, side->eps[i]);
    }
}

static void close_side(struct side *side)
{
    for (int i = 0; i < CONNECTIONS; i++)
        OK(dat_ep_free(side->eps[i]));
    OK(dat_lmr_free(side->lmr));
    OK(dat_evd_free(side->events));
    OK(dat_evd_free(side->requests));
    OK(dat_pz_free(side->pz));
    OK(dat_ia_close(side->ia, DAT_CLOSE_GRACEFUL_FLAG));
    free(side->memory);
}

/* Sends a message back, with this side's memory in place of the client's. */
static void answer(struct side *side, DAT_EP_HANDLE ep, size_t length)
{
    DAT_LMR_TRIPLET segment = place(side, ep);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    DAT_EVENT event;

    segment.segment_length = (DAT_SEG_LENGTH)length;
    if (ep == side->eps[1]) {
        side->messages++;
        EXPECT(length == side->size, "a message has %zu octets", length);
    } else if (length >= sizeof(struct memory_record)) {
        struct memory_record *memory_record = (struct memory_record *)(side->memory + REGION);
        memory_record->rkey = htobe32(side->rmr_context);
        memory_record->address = htobe64((uintptr_t)side->memory);
        side->memory_records++;
    }
    OK(dat_ep_post_send(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(side->requests);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "send: status %d",
           event.event_data.dto_completion_event_data.status);
    /*
     * The receive is posted only after the message was sent back, because the next control message
     * overwrites the message. The client never has more messages under way than receives were
     * posted, so a message always finds a receive.
     */
    post_receive(side, ep);
}

static void handle(struct side *side, const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event->event_data.dto_completion_event_data;
    switch (event->event_number) {
    case DAT_CONNECTION_REQUEST_EVENT:
        EXPECT(side->connected < CONNECTIONS, "the client makes too many connections");
        OK(dat_cr_accept(event->event_data.cr_arrival_event_data.cr_handle,
                         side->eps[side->connected++], 0, NULL));
        break;
    case DAT_CONNECTION_EVENT_ESTABLISHED:
        break;
    case DAT_CONNECTION_EVENT_DISCONNECTED:
        side->disconnected++;
        break;
    case DAT_DTO_COMPLETION_EVENT:
        if (dto->status != DAT_DTO_ERR_FLUSHED) {
            EXPECT(dto->status == DAT_DTO_SUCCESS, "receive: status %d", dto->status);
            answer(side, dto->ep_handle, dto->transfered_length);
        }
        break;
    default:
        FAIL("event 0x%x", event->event_number);
    }
}

int main(int argc, char **argv)
{
    struct side side = {0};
    DAT_PSP_HANDLE psp;
    size_t used = 0;

    EXPECT(argc == 3, "usage: perftest PORT SIZE");
    side.size = (size_t)atol(argv[2]);
    open_side(&side);
    OK(dat_psp_create(side.ia, (DAT_CONN_QUAL)atoi(argv[1]), side.events, DAT_PSP_CONSUMER_FLAG,
                      &psp));
    puts("listening");
    fflush(stdout);
    while (side.disconnected < CONNECTIONS) {
        DAT_EVENT event = wait_event(side.events);
        handle(&side, &event);
    }
    EXPECT(side.memory_records > 0, "the client has not sent the address of its memory");
    for (size_t i = 0; i < REGION; i++)
        used += side.memory[i] != 0;
    printf("%d messages, %zu octets that are not 0\n", side.messages, used);
    OK(dat_psp_free(psp));
    close_side(&side);
    puts("ok");
    return 0;
}
