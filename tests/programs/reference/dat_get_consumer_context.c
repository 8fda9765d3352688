/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_CONTEXT context = {.as_ptr = &here};
    DAT_EVENT event;

    OK(dat_set_consumer_context(here.ep, context));
    request_from_here();
    OK(dat_ep_disconnect(here.ep, DAT_CLOSE_ABRUPT_FLAG));
    event = wait_event(here.connect);
    EXPECT(record_of(&event) == &here, "another record");
    OK(dat_ep_free(here.ep));
    EXPECT(record_of(&event) == NULL, "the endpoint is freed");
}
