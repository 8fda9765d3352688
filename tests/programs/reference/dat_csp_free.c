/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "csp.h"

static void use_example(void)
{
    DAT_EVD_HANDLE requests = new_evd(&there, DAT_EVD_CR_FLAG, DAT_HANDLE_NULL);
    DAT_CSP_HANDLE csp = new_csp(requests);
    DAT_EVENT event, arrived;

    connect_to_csp(here.ep, csp);
    arrived = wait_event(requests);
    EXPECT(arrived.event_number == DAT_CONNECTION_REQUEST_EVENT, "no request");
    connect_to_csp(new_ep(&here, here.recv, here.request, here.connect), csp);
    /* The second request may be queued, or may be refused when the service point is freed. */
    EXPECT(stop_listening(csp, requests) == 0, "not freed");
    event = wait_event(here.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED ||
               event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
           "event 0x%x", event.event_number);
    dat_cr_reject(arrived.event_data.cr_arrival_event_data.cr_handle, 0, NULL);
}
