/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs of docs/guide.md share: checks of statuses, an adapter, memory, and events.
 */

#ifndef GUIDE_H
#define GUIDE_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>

enum { CONNECT_LIMIT = 30 * 1000000 /* microseconds */ };

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE async_evd;

/* Ends the program. */
static inline void fail(const char *reason)
{
    fprintf(stderr, "%s\n", reason);
    exit(1);
}

/* Ends the program if a call has failed. */
static inline void check(const char *call, DAT_RETURN status)
{
    const char *type, *subtype;

    if (status == DAT_SUCCESS)
        return;
    dat_strerror(status, &type, &subtype);
    fprintf(stderr, "%s: %s %s (0x%08x)\n", call, type, subtype, (unsigned)status);
    exit(1);
}

static inline void open_adapter(char *name)
{
    async_evd = DAT_HANDLE_NULL;
    check("dat_ia_open", dat_ia_open(name, 8, &async_evd, &ia));
    check("dat_pz_create", dat_pz_create(ia, &pz));
}

/* Refuses to close an adapter that still has objects, so it also checks that all were freed. */
static inline void close_adapter(void)
{
    check("dat_pz_free", dat_pz_free(pz));
    check("dat_ia_close", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

/* Registered memory: one key is for this process, the other for the peer. */
struct region {
    char *memory;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local_key;
    DAT_RMR_CONTEXT remote_key;
};

static const DAT_MEM_PRIV_FLAGS LOCAL =
    DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG;

static inline struct region register_memory(void *memory, DAT_VLEN size,
                                            DAT_MEM_PRIV_FLAGS privileges)
{
    struct region region = {.memory = memory};
    DAT_REGION_DESCRIPTION description = {.for_va = memory};

    check("dat_lmr_create", dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, description, size, pz,
                                           privileges, DAT_VA_TYPE_VA, &region.lmr,
                                           &region.local_key, &region.remote_key, NULL, NULL));
    return region;
}

/* Names a part of registered memory in a post. */
static inline DAT_LMR_TRIPLET part(const struct region *region, size_t offset, size_t length)
{
    return (DAT_LMR_TRIPLET){
        .virtual_address = (uintptr_t)region->memory + offset,
        .segment_length = length,
        .lmr_context = region->local_key,
    };
}

/* Waits for any event, however long it takes. */
static inline DAT_EVENT next_event(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN status;

    do {
        status = dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    } while (DAT_GET_TYPE(status) == DAT_INTERRUPTED_CALL);
    check("dat_evd_wait", status);
    return event;
}

/* Ends the program unless the event is the expected one and reports no failure. */
static inline void expect(const DAT_EVENT *event, DAT_EVENT_NUMBER number)
{
    DAT_DTO_COMPLETION_STATUS status = event->event_data.dto_completion_event_data.status;

    if (event->event_number != number) {
        fprintf(stderr, "%s in place of %s\n", dat_event_name(event->event_number),
                dat_event_name(number));
        exit(1);
    }
    if (number == DAT_DTO_COMPLETION_EVENT && status != DAT_DTO_SUCCESS) {
        fprintf(stderr, "completion status %d\n", status);
        exit(1);
    }
}

/* Connects to a server, and waits until the connection is established. */
static inline DAT_EVENT connect_to(DAT_EP_HANDLE ep, DAT_EVD_HANDLE evd, const char *host,
                                   DAT_CONN_QUAL qualifier)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    DAT_EVENT event;

    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        fail("HOST is not an IPv4 address");
    check("dat_ep_connect",
          dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&address, qualifier, CONNECT_LIMIT, 0, NULL,
                         DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    /* If the attempt fails, the flushed receives come before the event that reports the failure. */
    do {
        event = next_event(evd);
    } while (event.event_number == DAT_DTO_COMPLETION_EVENT);
    if (event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED)
        fail("HOST has refused the connection: is the server running?");
    expect(&event, DAT_CONNECTION_EVENT_ESTABLISHED);
    return event;
}

#endif
