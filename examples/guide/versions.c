/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program for uDAPL 1.2 and 2.0 from one source. The program rejects a connection, accepts one,
 * and writes through a window to memory, and has to do each of these differently in the versions.
 *
 *   versions [IA]
 *
 * With -DUDAPL_1_2, this is a uDAPL 1.2 program. docs/guide.md explains it.
 */

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef UDAPL_1_2
#include <dat/udat.h>
#else
#include <dat2/udat.h>
#endif

enum { LIMIT = 30 * 1000000 /* microseconds */, SIZE = 16 };

/* One end of the connection. */
struct end {
    DAT_EVD_HANDLE evd;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local_key;
    char memory[SIZE];
};

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static struct end client, server;

static void check(const char *call, DAT_RETURN status)
{
    const char *type, *subtype;

    if (status == DAT_SUCCESS)
        return;
    dat_strerror(status, &type, &subtype);
    fprintf(stderr, "%s: %s %s (0x%08x)\n", call, type, subtype, (unsigned)status);
    exit(1);
}

static void register_memory(struct end *end)
{
    DAT_MEM_PRIV_FLAGS privileges = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
    DAT_REGION_DESCRIPTION description = {.for_va = end->memory};

    check("dat_lmr_create",
          dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, description, SIZE, pz, privileges,
#ifndef UDAPL_1_2
                         DAT_VA_TYPE_VA,
#endif
                         &end->lmr, &end->local_key, NULL, NULL, NULL));
}

/* The order of the members differs, so they are named. */
static DAT_LMR_TRIPLET local_segment(const struct end *end)
{
    return (DAT_LMR_TRIPLET){
        .virtual_address = (uintptr_t)end->memory,
        .segment_length = SIZE,
        .lmr_context = end->local_key,
    };
}

static DAT_RMR_TRIPLET remote_segment(const struct end *end, DAT_RMR_CONTEXT key)
{
    return (DAT_RMR_TRIPLET){
#ifdef UDAPL_1_2
        .target_address = (uintptr_t)end->memory,
#else
        .virtual_address = (uintptr_t)end->memory,
#endif
        .segment_length = SIZE,
        .rmr_context = key,
    };
}

static void open_window(DAT_RMR_HANDLE window, const struct end *end, DAT_RMR_CONTEXT *key)
{
    DAT_LMR_TRIPLET segment = local_segment(end);

    check("dat_rmr_bind",
          dat_rmr_bind(window,
#ifndef UDAPL_1_2
                       end->lmr,
#endif
                       &segment, DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
#ifndef UDAPL_1_2
                       DAT_VA_TYPE_VA,
#endif
                       end->ep, (DAT_RMR_COOKIE){.as_64 = 0}, DAT_COMPLETION_DEFAULT_FLAG, key));
}

static void reject(DAT_CR_HANDLE cr)
{
#ifdef UDAPL_1_2
    check("dat_cr_reject", dat_cr_reject(cr));
#else
    check("dat_cr_reject", dat_cr_reject(cr, 4, "busy"));
#endif
}

static void create_end(struct end *end)
{
    DAT_EVD_FLAGS streams =
        DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG;

    check("dat_evd_create", dat_evd_create(ia, 16, DAT_HANDLE_NULL, streams, &end->evd));
    check("dat_ep_create", dat_ep_create(ia, pz, end->evd, end->evd, end->evd, NULL, &end->ep));
    register_memory(end);
}

static void free_end(struct end *end)
{
    check("dat_ep_free", dat_ep_free(end->ep));
    check("dat_lmr_free", dat_lmr_free(end->lmr));
    check("dat_evd_free", dat_evd_free(end->evd));
}

static DAT_EVENT wait_for(const struct end *end, DAT_EVENT_NUMBER expected)
{
    DAT_EVENT event;
    DAT_COUNT more;

    check("dat_evd_wait", dat_evd_wait(end->evd, LIMIT, 1, &event, &more));
    if (event.event_number != expected) {
        fprintf(stderr, "%s in place of %s\n", dat_event_name(event.event_number),
                dat_event_name(expected));
        exit(1);
    }
    return event;
}

/* Calls the server, and returns its connection request. */
static DAT_CR_HANDLE call(DAT_CONN_QUAL qualifier)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    check("dat_ep_connect",
          dat_ep_connect(client.ep, (DAT_IA_ADDRESS_PTR)&address, qualifier, LIMIT, 0, NULL,
                         DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    return wait_for(&server, DAT_CONNECTION_REQUEST_EVENT)
        .event_data.cr_arrival_event_data.cr_handle;
}

/* The client writes, and the server's program learns nothing of it. So the client disconnects. */
static void write_through_window(void)
{
    DAT_LMR_TRIPLET from = local_segment(&client);
    DAT_RMR_TRIPLET to;
    DAT_RMR_CONTEXT key;
    DAT_RMR_HANDLE window;
    DAT_EVENT event;

    check("dat_rmr_create", dat_rmr_create(pz, &window));
    open_window(window, &server, &key);
    event = wait_for(&server, DAT_RMR_BIND_COMPLETION_EVENT);
    if (event.event_data.rmr_completion_event_data.status != DAT_RMR_BIND_SUCCESS)
        exit(1);

    memcpy(client.memory, "through a window", SIZE);
    to = remote_segment(&server, key);
    check("dat_ep_post_rdma_write",
          dat_ep_post_rdma_write(client.ep, 1, &from, (DAT_DTO_COOKIE){.as_64 = 0}, &to,
                                 DAT_COMPLETION_SUPPRESS_FLAG));
    check("dat_ep_disconnect", dat_ep_disconnect(client.ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_for(&client, DAT_CONNECTION_EVENT_DISCONNECTED);
    wait_for(&server, DAT_CONNECTION_EVENT_DISCONNECTED);
    printf("written: %.*s\n", SIZE, server.memory);
    check("dat_rmr_free", dat_rmr_free(window));
}

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_CONN_QUAL qualifier;
    DAT_PSP_HANDLE psp;

    check("dat_ia_open", dat_ia_open(argc > 1 ? argv[1] : "tcp-emu", 8, &async, &ia));
    check("dat_pz_create", dat_pz_create(ia, &pz));
    create_end(&client);
    create_end(&server);
    check("dat_psp_create_any",
          dat_psp_create_any(ia, &qualifier, server.evd, DAT_PSP_CONSUMER_FLAG, &psp));

    reject(call(qualifier));
    wait_for(&client, DAT_CONNECTION_EVENT_PEER_REJECTED);
    puts("rejected");
    check("dat_ep_reset", dat_ep_reset(client.ep));
    check("dat_cr_accept", dat_cr_accept(call(qualifier), server.ep, 0, NULL));
    wait_for(&server, DAT_CONNECTION_EVENT_ESTABLISHED);
    wait_for(&client, DAT_CONNECTION_EVENT_ESTABLISHED);
    write_through_window();

    check("dat_psp_free", dat_psp_free(psp));
    free_end(&client);
    free_end(&server);
    check("dat_pz_free", dat_pz_free(pz));
    check("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    return 0;
}
