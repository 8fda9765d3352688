/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Unreliable datagrams: a server answers any number of clients through one endpoint.
 *
 *   datagrams server [IA [CLIENTS]]          datagrams client ADDRESS [IA]
 *
 * The server ends when it has answered CLIENTS clients (default: 1). A datagram may be lost, so a
 * client sends its question again until it gets the answer. docs/softroce.md describes datagrams.
 */

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>

enum {
    QUALIFIER = 7778,
    LIMIT = 10 * 1000000,  /* the time to find the server, in microseconds */
    ANSWER = 200 * 1000,   /* the time after which a question is repeated, in microseconds */
    TRIES = 50,
    HEADER = 40,           /* the octets before each message in a receive buffer */
    MESSAGE = 64,
    RECEIVES = 16,
    SENDS = 4 * RECEIVES,  /* a send is done when its event is taken, after those of receives */
    CLIENTS_MAX = 1000,
};

/* A client names itself in its private data and in each question. */
struct question {
    uint32_t client;
    char text[MESSAGE - sizeof(uint32_t)];
};

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE completions, connections;
static DAT_EP_HANDLE ep;
static struct {
    char receives[RECEIVES][HEADER + MESSAGE];
    struct question message;
} memory;
static DAT_LMR_CONTEXT key;
static DAT_IB_ADDR_HANDLE peers[CLIENTS_MAX];
static bool is_answered[CLIENTS_MAX];
static uint32_t accepted_count, peer_count;

static void check(const char *what, DAT_RETURN answer)
{
    const char *major, *minor;
    if (answer == DAT_SUCCESS)
        return;
    dat_strerror(answer, &major, &minor);
    fprintf(stderr, "%s: %s %s\n", what, major, minor);
    exit(1);
}

static DAT_LMR_TRIPLET segment(void *address, size_t length)
{
    DAT_LMR_TRIPLET triplet = {
        .virtual_address = (DAT_VADDR)(uintptr_t)address,
        .segment_length = length,
        .lmr_context = key,
    };
    return triplet;
}

static void post_receive(uint64_t number)
{
    DAT_LMR_TRIPLET room = segment(memory.receives[number], HEADER + MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = number};
    check("dat_ib_post_recv_ud", dat_ib_post_recv_ud(ep, 1, &room, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void open_all(char *name)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_EVD_FLAGS streams = DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG;
    DAT_REGION_DESCRIPTION region = {.for_va = &memory};
    DAT_EP_ATTR attributes = {
        .service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD,
        .max_message_size = MESSAGE,
        .max_recv_dtos = RECEIVES,
        .max_request_dtos = SENDS,
        .max_recv_iov = 1,
        .max_request_iov = 1,
    };
    DAT_LMR_HANDLE lmr;
    DAT_RMR_CONTEXT unused;
    DAT_VLEN size;
    DAT_VADDR address;

    check("dat_ia_open", dat_ia_open(name, 8, &async, &ia));
    check("dat_pz_create", dat_pz_create(ia, &pz));
    check("dat_evd_create", dat_evd_create(ia, RECEIVES + SENDS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &completions));
    check("dat_evd_create", dat_evd_create(ia, CLIENTS_MAX, DAT_HANDLE_NULL, streams, &connections));
    check("dat_lmr_create", dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG,
                                           DAT_VA_TYPE_VA, &lmr, &key, &unused, &size, &address));
    check("dat_ep_create", dat_ep_create(ia, pz, completions, completions, connections, &attributes, &ep));
    for (uint64_t number = 0; number < RECEIVES; number++)
        post_receive(number);
}

/* Takes the next event. Returns false if none comes within the time limit. */
static bool next_event(DAT_EVD_HANDLE evd, DAT_TIMEOUT limit, DAT_EVENT *event)
{
    DAT_COUNT more;
    DAT_RETURN answer = dat_evd_wait(evd, limit, 1, event, &more);
    if (DAT_GET_TYPE(answer) == DAT_TIMEOUT_EXPIRED)
        return false;
    check("dat_evd_wait", answer);
    return true;
}

static void send_to(DAT_IB_ADDR_HANDLE *peer)
{
    DAT_LMR_TRIPLET data = segment(&memory.message, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = RECEIVES};
    check("dat_ib_post_send_ud", dat_ib_post_send_ud(ep, 1, &data, peer, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Waits for a datagram, and copies it. Returns false if none comes within the time limit. */
static bool receive(DAT_TIMEOUT limit, struct question *message)
{
    DAT_EVENT event;
    while (next_event(completions, limit, &event)) {
        DAT_DTO_COMPLETION_EVENT_DATA *done = &event.event_data.dto_completion_event_data;
        if (done->status != DAT_DTO_SUCCESS) {
            fprintf(stderr, "completion status %d\n", done->status);
            exit(1);
        }
        if (done->operation != (DAT_DTOS)DAT_IB_DTO_RECV_UD)
            continue; /* a send is done */
        bool is_whole = done->transfered_length >= HEADER + sizeof *message;
        memcpy(message, memory.receives[done->user_cookie.as_64] + HEADER, sizeof *message);
        post_receive(done->user_cookie.as_64);
        if (is_whole) /* anybody may send datagrams, also short ones */
            return true;
    }
    return false;
}

/* Answers the requests of new clients, and keeps their addresses. */
static void meet_clients(DAT_TIMEOUT limit)
{
    DAT_EVENT event;
    while (next_event(connections, limit, &event)) {
        DAT_IB_EXTENSION_EVENT_DATA *more = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
        limit = 0;
        if (event.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_REQUEST_EVENT) {
            DAT_CR_HANDLE request = event.event_data.cr_arrival_event_data.cr_handle;
            uint32_t number = htonl(accepted_count);
            if (accepted_count == CLIENTS_MAX) {
                check("dat_cr_reject", dat_cr_reject(request, 0, NULL));
            } else {
                check("dat_cr_accept", dat_cr_accept(request, ep, sizeof number, &number));
                accepted_count++;
            }
        } else if (event.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED) {
            /* These events come in the order in which the requests were accepted. */
            peers[peer_count++] = more->remote_ah;
            check("dat_ib_ud_cm_free", dat_ib_ud_cm_free(ep, more->context.as_ptr));
        }
    }
}

static void serve(uint32_t clients)
{
    DAT_PSP_HANDLE psp;
    struct question question;

    check("dat_psp_create", dat_psp_create(ia, QUALIFIER, connections, DAT_PSP_CONSUMER_FLAG, &psp));
    puts("listening");
    fflush(stdout);
    meet_clients(DAT_TIMEOUT_INFINITE);
    for (uint32_t answered = 0; answered < clients;) {
        meet_clients(0);
        if (!receive(ANSWER, &question))
            continue;
        uint32_t client = ntohl(question.client);
        if (client >= peer_count)
            continue; /* not a client of ours */
        if (!is_answered[client]) {
            is_answered[client] = true;
            answered++;
            printf("client %u: %.*s\n", client, (int)sizeof question.text, question.text);
        }
        memory.message = question;
        strcpy(memory.message.text, "read you");
        send_to(&peers[client]);
    }
}

static void ask(const char *address)
{
    struct sockaddr_in server = {.sin_family = AF_INET};
    struct question answer;
    DAT_EVENT event;
    DAT_IB_EXTENSION_EVENT_DATA *more = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
    uint32_t number;

    if (inet_pton(AF_INET, address, &server.sin_addr) != 1) {
        fprintf(stderr, "%s: not an IPv4 address\n", address);
        exit(1);
    }
    check("dat_ep_connect", dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&server, QUALIFIER, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
                                           DAT_CONNECT_DEFAULT_FLAG));
    if (!next_event(connections, DAT_TIMEOUT_INFINITE, &event) ||
        event.event_number != (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED) {
        fprintf(stderr, "%s: is the server running?\n", dat_event_name(event.event_number));
        exit(1);
    }
    DAT_CONNECTION_EVENT_DATA *established = &event.event_data.connect_event_data;
    if (established->private_data_size < (DAT_COUNT)sizeof number) {
        fputs("the server sends no number\n", stderr);
        exit(1);
    }
    memcpy(&number, established->private_data, sizeof number);
    memory.message.client = number;
    strcpy(memory.message.text, "do you read me?");
    for (int tries = 0; tries < TRIES; tries++) {
        send_to(&more->remote_ah);
        if (receive(ANSWER, &answer)) {
            printf("server: %.*s\n", (int)sizeof answer.text, answer.text);
            return;
        }
    }
    fputs("no answer\n", stderr);
    exit(1);
}

int main(int argc, char **argv)
{
    bool serves = argc >= 2 && strcmp(argv[1], "server") == 0;
    bool asks = argc >= 3 && strcmp(argv[1], "client") == 0;
    int ia_at = serves ? 2 : 3;
    if (!serves && !asks) {
        fputs("usage: datagrams server [IA [CLIENTS]]\n       datagrams client ADDRESS [IA]\n", stderr);
        return 2;
    }
    open_all(argc > ia_at ? argv[ia_at] : "softroce");
    if (serves)
        serve(argc > 3 ? strtoul(argv[3], NULL, 10) : 1);
    else
        ask(argv[2]);
    check("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    return 0;
}
