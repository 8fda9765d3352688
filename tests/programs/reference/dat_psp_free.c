/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE requests = new_evd(&there, DAT_EVD_CR_FLAG, DAT_HANDLE_NULL);
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    start_connect(here.ep, listen_there(requests, DAT_PSP_CONSUMER_FLAG, &psp));
    /* The request may have arrived, or may be refused when the service point is freed. */
    EXPECT(stop_listening(psp, requests) == 0, "not freed");
    event = wait_event(here.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED ||
               event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
           "event 0x%x", event.event_number);
}
