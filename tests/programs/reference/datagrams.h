/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Endpoints for datagrams at both ends. */

#ifndef DATAGRAMS_H
#define DATAGRAMS_H

#include <dat2/dat_ib_extensions.h>

enum { HEADER = 40 /* the octets before each message in a receive buffer */ };

static DAT_EP_HANDLE asking, answering;
static DAT_IB_ADDR_HANDLE to_answering;
/* The event that has told `asking` the address of `answering`. */
static DAT_EVENT resolved;

/* Creates an EP for datagrams. Returns false if the adapter has none. */
static inline bool new_datagram_end(const struct end *end, DAT_EP_HANDLE *ep)
{
    DAT_EP_ATTR attr = ep_attributes(FRAME_DTOS);
    DAT_RETURN status;

    attr.service_type = (DAT_SERVICE_TYPE)DAT_IB_SERVICE_TYPE_UD;
    status = dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, ep);
    if (DAT_GET_TYPE(status) == DAT_MODEL_NOT_SUPPORTED)
        return false;
    OK(status);
    return true;
}

/* Lets `asking` of `here` and `answering` of `there` know each other. */
static inline void introduce(const char *private_data)
{
    DAT_COUNT size = (DAT_COUNT)strlen(private_data) + 1;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    start_connect(asking, listen_there(there.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    event = wait_event(there.cr);
    EXPECT(event.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_REQUEST_EVENT,
           "event 0x%x", event.event_number);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, answering, size,
                     (DAT_PVOID)private_data));
    resolved = wait_event(here.connect);
    EXPECT(resolved.event_number == (DAT_EVENT_NUMBER)DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
           "event 0x%x", resolved.event_number);
    to_answering = ((DAT_IB_EXTENSION_EVENT_DATA *)resolved.event_extension_data)->remote_ah;
    OK(dat_psp_free(psp));
}

/* Creates both endpoints, which then know each other. Returns false if there are no datagrams. */
static inline bool introduce_new(void)
{
    if (!new_datagram_end(&here, &asking))
        return false;
    EXPECT(new_datagram_end(&there, &answering), "only one end has datagrams");
    introduce("answer");
    return true;
}

/* Posts a receive at the other end. */
static inline void expect_datagram(void)
{
    DAT_LMR_TRIPLET room = local_segment(&there, 0, 64 + HEADER);
    DAT_DTO_COOKIE cookie = {.as_64 = 0};
    OK(dat_ib_post_recv_ud(answering, 1, &room, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Waits for a datagram. Returns false if none arrives: the network may have lost it. */
static inline bool arrives(DAT_EVENT *event)
{
    DAT_COUNT more;
    DAT_RETURN status = dat_evd_wait(there.recv, SECOND / 5, 1, event, &more);
    if (DAT_GET_TYPE(status) == DAT_TIMEOUT_EXPIRED)
        return false;
    OK(status);
    EXPECT(event->event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "no success");
    return true;
}

#endif
