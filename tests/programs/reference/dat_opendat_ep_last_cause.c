/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    char cause[64];

    connect_ends();
    OK(dat_ep_disconnect(here.ep, DAT_CLOSE_ABRUPT_FLAG));
    EXPECT(wait_event(here.connect).event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "no end");
    print_cause(here.ep);
    OK(dat_opendat_ep_last_cause(here.ep, cause, sizeof cause));
    EXPECT(strcmp(cause, "this side has disconnected") == 0, "%s", cause);
}
