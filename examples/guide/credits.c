/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Credit flow: a source sends numbers, never more than the sink has receives for.
 *
 *   credits sink [IA]             credits source HOST [IA]
 *
 * docs/guide.md explains the program.
 */

#include "guide.h"

enum {
    QUALIFIER = 7802,
    CREDITS = 8,
    BATCH = CREDITS / 2,
    MESSAGES = 1000,
    SIZE = sizeof(uint32_t)
};

/* The receives are posted to the first CREDITS slots, and the sends use the others. */
static uint32_t memory[2 * CREDITS];
static struct region region;
static DAT_EVD_HANDLE events;
static DAT_EP_HANDLE ep;

static void post_receive(DAT_UINT64 slot)
{
    DAT_LMR_TRIPLET segment = part(&region, slot * SIZE, SIZE);

    check("dat_ep_post_recv", dat_ep_post_recv(ep, 1, &segment, (DAT_DTO_COOKIE){.as_64 = slot},
                                               DAT_COMPLETION_DEFAULT_FLAG));
}

/* Sends a number, or an empty message. */
static void send_number(DAT_UINT64 slot, uint32_t number, size_t size)
{
    DAT_LMR_TRIPLET segment = part(&region, (CREDITS + slot) * SIZE, size);

    memory[CREDITS + slot] = htonl(number);
    check("dat_ep_post_send", dat_ep_post_send(ep, 1, &segment, (DAT_DTO_COOKIE){.as_64 = slot},
                                               DAT_COMPLETION_DEFAULT_FLAG));
}

static DAT_DTO_COMPLETION_EVENT_DATA next_completion(void)
{
    DAT_EVENT event = next_event(events);

    expect(&event, DAT_DTO_COMPLETION_EVENT);
    return event.event_data.dto_completion_event_data;
}

static void source(const char *host)
{
    int credits = CREDITS; /* The sink posts this number of receives before it accepts. */
    int sending = 0;       /* the sends without a completion */
    DAT_EVENT event;

    for (DAT_UINT64 slot = 0; slot < CREDITS; slot++)
        post_receive(slot);
    connect_to(ep, events, host, QUALIFIER);
    /* ANCHOR: source */
    for (uint32_t number = 1; number <= MESSAGES + 1; number++) {
        /* A message needs a receive at the sink, and a slot that no earlier send still uses. */
        while (credits == 0 || sending == CREDITS) {
            DAT_DTO_COMPLETION_EVENT_DATA completion = next_completion();
            DAT_UINT64 slot = completion.user_cookie.as_64;
            uint32_t returned = ntohl(memory[slot]);

            if (completion.operation == DAT_DTO_SEND) {
                sending--;
                continue;
            }
            if (completion.transfered_length != SIZE || returned > (uint32_t)(CREDITS - credits))
                fail("the sink returns more credits than the source has spent");
            credits += returned;
            post_receive(slot);
        }
        credits--;
        sending++;
        /* Sends complete in their order, so the slots become free in this order, too. */
        send_number(number % CREDITS, number, number <= MESSAGES ? SIZE : 0);
    }
    /* ANCHOR_END: source */
    printf("%d messages sent\n", MESSAGES);

    /* The sink disconnects when it has received the last message, which is empty. */
    do {
        event = next_event(events);
    } while (event.event_number == DAT_DTO_COMPLETION_EVENT);
    expect(&event, DAT_CONNECTION_EVENT_DISCONNECTED);
}

static void sink(void)
{
    int received = 0, unreported = 0, sending = 0;
    uint64_t sum = 0;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    bool is_last = false;

    check("dat_psp_create", dat_psp_create(ia, QUALIFIER, events, DAT_PSP_CONSUMER_FLAG, &psp));
    puts("listening");
    fflush(stdout);
    event = next_event(events);
    expect(&event, DAT_CONNECTION_REQUEST_EVENT);
    for (DAT_UINT64 slot = 0; slot < CREDITS; slot++)
        post_receive(slot);
    check("dat_cr_accept",
          dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
    event = next_event(events);
    expect(&event, DAT_CONNECTION_EVENT_ESTABLISHED);

    while (!is_last) {
        DAT_DTO_COMPLETION_EVENT_DATA completion = next_completion();
        DAT_UINT64 slot = completion.user_cookie.as_64;

        if (completion.operation == DAT_DTO_SEND) {
            sending--;
        } else if (completion.transfered_length == 0) {
            is_last = true;
        } else {
            if (completion.transfered_length != SIZE)
                fail("the source sends something other than numbers");
            received++;
            sum += ntohl(memory[slot]);
            post_receive(slot); /* first the receive, and then the credit for it */
            unreported++;
        }
        /* One message returns several credits. Its slot is free when its send has completed. */
        if (unreported >= BATCH && sending == 0) {
            send_number(0, unreported, SIZE);
            unreported = 0;
            sending = 1;
        }
    }
    printf("%d messages received, sum %llu\n", received, (unsigned long long)sum);
    check("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    do {
        event = next_event(events);
    } while (event.event_number == DAT_DTO_COMPLETION_EVENT);
    expect(&event, DAT_CONNECTION_EVENT_DISCONNECTED);
    check("dat_psp_free", dat_psp_free(psp));
}

int main(int argc, char **argv)
{
    DAT_EVD_FLAGS streams = DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_DTO_FLAG;
    bool is_sink = argc >= 2 && strcmp(argv[1], "sink") == 0;
    int arguments = is_sink ? 2 : 3;

    if (argc < arguments || argc > arguments + 1 || (!is_sink && strcmp(argv[1], "source") != 0)) {
        fprintf(stderr, "usage: credits sink [IA] | credits source HOST [IA]\n");
        return 2;
    }
    open_adapter(argc > arguments ? argv[arguments] : "tcp-emu");
    check("dat_evd_create", dat_evd_create(ia, 4 * CREDITS, DAT_HANDLE_NULL, streams, &events));
    region = register_memory(memory, sizeof memory, LOCAL);
    check("dat_ep_create", dat_ep_create(ia, pz, events, events, events, NULL, &ep));
    if (is_sink)
        sink();
    else
        source(argv[2]);
    check("dat_ep_free", dat_ep_free(ep));
    check("dat_lmr_free", dat_lmr_free(region.lmr));
    check("dat_evd_free", dat_evd_free(events));
    close_adapter();
    return 0;
}
