/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVENT event;
    const DAT_CONNECTION_EVENT_DATA *about = &event.event_data.connect_event_data;

    EXPECT(reject(request_from_here()) == 0, "not rejected");
    event = wait_event(here.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED, "event 0x%x",
           event.event_number);
    EXPECT(about->private_data_size >= 5 && strcmp(about->private_data, "busy") == 0,
           "the peer does not get the reason");
}
