/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A one-sided ring: a producer writes records into the memory of a consumer, and reads there how
 * many of them the consumer has taken.
 *
 *   ring consumer [IA]             ring producer HOST [IA]
 *
 * docs/guide.md explains the program.
 */

#include <endian.h>
#include <stdatomic.h>
#include <stddef.h>

#include "guide.h"

enum { QUALIFIER = 7803, SLOTS = 16, RECORDS = 1000 };

struct record {
    uint32_t number;
    char text[60];
};

/* The consumer's memory, which the producer reads and writes. */
struct ring {
    struct record records[SLOTS];
    /* How many records the consumer has taken, modulo 256. One octet is always read as a whole. */
    _Atomic uint8_t taken;
};

/* What the consumer tells the producer in its private data, in network byte order. */
struct offer {
    uint64_t address;
    uint32_t key;
};

static struct ring ring;
static struct region region;
static DAT_EVD_HANDLE events;
static DAT_EP_HANDLE ep;

static DAT_DTO_COMPLETION_EVENT_DATA next_completion(void)
{
    DAT_EVENT event = next_event(events);

    expect(&event, DAT_DTO_COMPLETION_EVENT);
    return event.event_data.dto_completion_event_data;
}

/* The receives have no memory: the messages are empty, and only their arrival counts. */
static void post_receive(void)
{
    check("dat_ep_post_recv",
          dat_ep_post_recv(ep, 0, NULL, (DAT_DTO_COOKIE){.as_64 = 0}, DAT_COMPLETION_DEFAULT_FLAG));
}

static void consume(void)
{
    struct offer offer = {htobe64((uintptr_t)&ring), htonl(region.remote_key)};
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    int taken = 0;

    check("dat_psp_create", dat_psp_create(ia, QUALIFIER, events, DAT_PSP_CONSUMER_FLAG, &psp));
    puts("listening");
    fflush(stdout);
    event = next_event(events);
    expect(&event, DAT_CONNECTION_REQUEST_EVENT);
    for (int i = 0; i < SLOTS; i++)
        post_receive();
    check("dat_cr_accept", dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep,
                                         sizeof offer, &offer));
    event = next_event(events);
    expect(&event, DAT_CONNECTION_EVENT_ESTABLISHED);

    /* ANCHOR: consumer */
    while (event = next_event(events), event.event_number == DAT_DTO_COMPLETION_EVENT) {
        const struct record *record = &ring.records[taken % SLOTS];

        if (event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED)
            continue; /* The producer has disconnected, and no more messages come. */
        expect(&event, DAT_DTO_COMPLETION_EVENT);
        taken++;
        if (ntohl(record->number) != (uint32_t)taken)
            fail("the record is not the next one");
        /* From here on, the producer may write to the slot, and send one more message. */
        post_receive();
        atomic_store_explicit(&ring.taken, taken, memory_order_release);
    }
    /* ANCHOR_END: consumer */
    expect(&event, DAT_CONNECTION_EVENT_DISCONNECTED);
    if (taken == 0)
        fail("the producer has written no record");
    printf("%d records taken, the last one is \"%.60s\"\n", taken,
           ring.records[(taken - 1) % SLOTS].text);
    check("dat_psp_free", dat_psp_free(psp));
}

static DAT_RMR_TRIPLET remote_part(const struct offer *offer, size_t position, size_t size)
{
    return (DAT_RMR_TRIPLET){
        .virtual_address = be64toh(offer->address) + position,
        .segment_length = size,
        .rmr_context = ntohl(offer->key),
    };
}

/* Reads how many records the consumer has taken, and waits for the answer. */
static uint8_t read_taken(const struct offer *offer)
{
    const size_t position = offsetof(struct ring, taken);
    DAT_RMR_TRIPLET remote = remote_part(offer, position, 1);
    DAT_LMR_TRIPLET local = part(&region, position, 1);

    check("dat_ep_post_rdma_read",
          dat_ep_post_rdma_read(ep, 1, &local, (DAT_DTO_COOKIE){.as_64 = 0}, &remote,
                                DAT_COMPLETION_DEFAULT_FLAG));
    while (next_completion().operation != DAT_DTO_RDMA_READ)
        ; /* Completions of messages show that the writes before them have been sent. */
    return ring.taken;
}

/* ANCHOR: producer */
static void write_record(const struct offer *offer, uint32_t number)
{
    const size_t position = number % SLOTS * sizeof(struct record);
    DAT_RMR_TRIPLET remote = remote_part(offer, position, sizeof(struct record));
    DAT_LMR_TRIPLET local = part(&region, position, sizeof(struct record));
    struct record *record = &ring.records[number % SLOTS];

    record->number = htonl(number + 1);
    snprintf(record->text, sizeof record->text, "record %u", number + 1);
    check("dat_ep_post_rdma_write",
          dat_ep_post_rdma_write(ep, 1, &local, (DAT_DTO_COOKIE){.as_64 = 0}, &remote,
                                 DAT_COMPLETION_SUPPRESS_FLAG));
    /* The message arrives after the record, and so tells the consumer that the record is there. */
    check("dat_ep_post_send",
          dat_ep_post_send(ep, 0, NULL, (DAT_DTO_COOKIE){.as_64 = 0}, DAT_COMPLETION_DEFAULT_FLAG));
}
/* ANCHOR_END: producer */

static void produce(const char *host)
{
    DAT_EVENT event = connect_to(ep, events, host, QUALIFIER);
    uint8_t in_ring = 0, taken = 0;
    struct offer offer;

    if (event.event_data.connect_event_data.private_data_size < (DAT_COUNT)sizeof offer)
        fail("the consumer does not describe its ring");
    memcpy(&offer, event.event_data.connect_event_data.private_data, sizeof offer);
    for (uint32_t number = 0; number < RECORDS; number++) {
        while (in_ring == SLOTS) {
            taken = read_taken(&offer);
            in_ring = (uint8_t)(number - taken);
            if (in_ring > SLOTS)
                fail("the consumer has taken records that are not there");
        }
        write_record(&offer, number);
        in_ring++;
    }
    while (taken != (uint8_t)RECORDS)
        taken = read_taken(&offer);
    printf("%d records written and taken\n", RECORDS);
    check("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    do {
        event = next_event(events);
    } while (event.event_number == DAT_DTO_COMPLETION_EVENT);
    expect(&event, DAT_CONNECTION_EVENT_DISCONNECTED);
}

int main(int argc, char **argv)
{
    DAT_EVD_FLAGS streams = DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_DTO_FLAG;
    DAT_MEM_PRIV_FLAGS privileges =
        LOCAL | DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    bool is_consumer = argc >= 2 && strcmp(argv[1], "consumer") == 0;
    int arguments = is_consumer ? 2 : 3;

    if (argc < arguments || argc > arguments + 1 ||
        (!is_consumer && strcmp(argv[1], "producer") != 0)) {
        fprintf(stderr, "usage: ring consumer [IA] | ring producer HOST [IA]\n");
        return 2;
    }
    open_adapter(argc > arguments ? argv[arguments] : "tcp-emu");
    check("dat_evd_create", dat_evd_create(ia, 8 * SLOTS, DAT_HANDLE_NULL, streams, &events));
    region = register_memory(&ring, sizeof ring, is_consumer ? privileges : LOCAL);
    check("dat_ep_create", dat_ep_create(ia, pz, events, events, events, NULL, &ep));
    if (is_consumer)
        consume();
    else
        produce(argv[2]);
    check("dat_ep_free", dat_ep_free(ep));
    check("dat_lmr_free", dat_lmr_free(region.lmr));
    check("dat_evd_free", dat_evd_free(events));
    close_adapter();
    return 0;
}
