/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, DAT_HANDLE_NULL);
    struct job job = {.number = 1};
    DAT_EVENT event;
    int result;

    while ((result = hand_over(evd, &job)) == 0)
        continue;
    EXPECT(result == 1, "the EVD is full, but the result is %d", result);
    event = wait_event(evd);
    EXPECT(event.event_data.software_event_data.pointer == &job, "another job");
}
