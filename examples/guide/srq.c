/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Request and response: a server answers all its clients from one shared receive queue.
 *
 *   srq server CLIENTS [IA]             srq client HOST [IA]
 *
 * The server ends when it has served this number of clients. docs/guide.md explains the program.
 */

#include <ctype.h>

#include "guide.h"

enum {
    QUALIFIER = 7801,
    CLIENTS = 16, /* at most, at one time */
    WINDOW = 4,   /* requests of one client that may be outstanding */
    BUFFERS = CLIENTS * WINDOW,
    SIZE = 64,
    REQUESTS = 100,
};

static char memory[BUFFERS * SIZE];
static struct region region;
static DAT_EVD_HANDLE events;

static DAT_SRQ_HANDLE srq;
static int connected, answers;

/* The cookie of a receive and of a send is the number of its buffer. */
static void post_to_srq(DAT_UINT64 buffer)
{
    DAT_LMR_TRIPLET segment = part(&region, buffer * SIZE, SIZE);

    check("dat_srq_post_recv",
          dat_srq_post_recv(srq, 1, &segment, (DAT_DTO_COOKIE){.as_64 = buffer}));
}

static void accept_client(DAT_CR_HANDLE cr)
{
    /* There are no defaults here: every limit of the endpoint is the program's choice. */
    DAT_EP_ATTR attributes = {
        .service_type = DAT_SERVICE_TYPE_RC,
        .max_message_size = SIZE,
        .qos = DAT_QOS_BEST_EFFORT,
        /* The EVD also takes other events than completions. */
        .recv_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        .request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        .max_request_dtos = BUFFERS, /* each answer occupies a buffer until its send completes */
        .max_request_iov = 1,
        .srq_soft_hw = DAT_WATERMARK_INFINITE,
    };
    DAT_EP_HANDLE ep;

    if (connected == CLIENTS) {
        check("dat_cr_reject", dat_cr_reject(cr, 0, NULL));
        return;
    }
    connected++;
    check("dat_ep_create_with_srq",
          dat_ep_create_with_srq(ia, pz, events, events, events, srq, &attributes, &ep));
    check("dat_cr_accept", dat_cr_accept(cr, ep, 0, NULL));
}

/* Answers a request in the buffer in which it has arrived. */
static void answer(const DAT_DTO_COMPLETION_EVENT_DATA *request)
{
    DAT_UINT64 buffer = request->user_cookie.as_64;
    DAT_LMR_TRIPLET segment = part(&region, buffer * SIZE, request->transfered_length);

    for (DAT_UINT32 i = 0; i < request->transfered_length; i++)
        memory[buffer * SIZE + i] = toupper((unsigned char)memory[buffer * SIZE + i]);
    check("dat_ep_post_send", dat_ep_post_send(request->ep_handle, 1, &segment,
                                               request->user_cookie, DAT_COMPLETION_DEFAULT_FLAG));
    answers++;
}

static void serve(int clients)
{
    DAT_SRQ_ATTR attributes = {
        .max_recv_dtos = BUFFERS, .max_recv_iov = 1, .low_watermark = DAT_SRQ_LW_DEFAULT};
    const DAT_DTO_COMPLETION_EVENT_DATA *completion;
    int served = 0;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    check("dat_srq_create", dat_srq_create(ia, pz, &attributes, &srq));
    for (DAT_UINT64 buffer = 0; buffer < BUFFERS; buffer++)
        post_to_srq(buffer);
    check("dat_psp_create", dat_psp_create(ia, QUALIFIER, events, DAT_PSP_CONSUMER_FLAG, &psp));
    puts("listening");
    fflush(stdout);

    /* ANCHOR: loop */
    while (served < clients) {
        event = next_event(events);
        completion = &event.event_data.dto_completion_event_data;
        switch (event.event_number) {
        case DAT_CONNECTION_REQUEST_EVENT:
            accept_client(event.event_data.cr_arrival_event_data.cr_handle);
            break;
        case DAT_CONNECTION_EVENT_ESTABLISHED:
            break;
        case DAT_DTO_COMPLETION_EVENT:
            /* One client's failure is not the server's: the end of the connection follows. */
            if (completion->operation != DAT_DTO_SEND && completion->status == DAT_DTO_SUCCESS)
                answer(completion);
            else
                post_to_srq(completion->user_cookie.as_64);
            break;
        default: /* The connection has ended, or was not established. */
            check("dat_ep_free", dat_ep_free(event.event_data.connect_event_data.ep_handle));
            connected--;
            served++;
        }
    }
    /* ANCHOR_END: loop */
    printf("%d clients, %d answers\n", served, answers);
    check("dat_psp_free", dat_psp_free(psp));
    check("dat_srq_free", dat_srq_free(srq));
}

static void request(DAT_EP_HANDLE ep, int number)
{
    int slot = number % WINDOW;
    char *text = memory + slot * SIZE;
    DAT_LMR_TRIPLET question = part(&region, slot * SIZE, SIZE);
    DAT_LMR_TRIPLET response = part(&region, (WINDOW + slot) * SIZE, SIZE);
    DAT_DTO_COOKIE cookie = {.as_64 = number};

    memset(text, 0, SIZE);
    snprintf(text, SIZE, "request %d", number);
    /* The receive for the answer is posted before the request, so the answer always finds it. */
    check("dat_ep_post_recv",
          dat_ep_post_recv(ep, 1, &response, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    check("dat_ep_post_send",
          dat_ep_post_send(ep, 1, &question, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void call(const char *host)
{
    bool is_sent[WINDOW] = {false}, is_answered[WINDOW] = {false};
    int sent = 0, answered = 0;
    char expected[SIZE];
    DAT_EP_HANDLE ep;
    DAT_EVENT event;

    check("dat_ep_create", dat_ep_create(ia, pz, events, events, events, NULL, &ep));
    connect_to(ep, events, host, QUALIFIER);
    while (sent < WINDOW)
        request(ep, sent++);
    while (answered < REQUESTS) {
        const DAT_DTO_COMPLETION_EVENT_DATA *completion =
            &event.event_data.dto_completion_event_data;
        int number, slot;

        event = next_event(events);
        expect(&event, DAT_DTO_COMPLETION_EVENT);
        number = completion->user_cookie.as_64;
        slot = number % WINDOW;
        if (completion->operation == DAT_DTO_SEND) {
            is_sent[slot] = true;
        } else {
            snprintf(expected, SIZE, "REQUEST %d", number);
            if (strncmp(memory + (WINDOW + slot) * SIZE, expected, SIZE) != 0)
                fail("a wrong answer");
            is_answered[slot] = true;
        }
        /* The slot is free when its request is sent and answered. The two come in any order. */
        if (is_sent[slot] && is_answered[slot]) {
            is_sent[slot] = is_answered[slot] = false;
            answered++;
            if (sent < REQUESTS)
                request(ep, sent++);
        }
    }
    printf("%d answers\n", answered);
    check("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    event = next_event(events);
    expect(&event, DAT_CONNECTION_EVENT_DISCONNECTED);
    check("dat_ep_free", dat_ep_free(ep));
}

int main(int argc, char **argv)
{
    bool is_server = argc >= 3 && strcmp(argv[1], "server") == 0 && atoi(argv[2]) > 0;
    DAT_EVD_FLAGS streams = DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_DTO_FLAG;

    if (argc < 3 || argc > 4 || (!is_server && strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: srq server CLIENTS [IA] | srq client HOST [IA]\n");
        return 2;
    }
    open_adapter(argc > 3 ? argv[3] : "tcp-emu");
    check("dat_evd_create",
          dat_evd_create(ia, BUFFERS + 3 * CLIENTS, DAT_HANDLE_NULL, streams, &events));
    region = register_memory(memory, sizeof memory, LOCAL);
    if (is_server)
        serve(atoi(argv[2]));
    else
        call(argv[2]);
    check("dat_lmr_free", dat_lmr_free(region.lmr));
    check("dat_evd_free", dat_evd_free(events));
    close_adapter();
    return 0;
}
