/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, DAT_HANDLE_NULL);
    DAT_EVENT event;

    EXPECT(take(evd, &event) == 0, "there is no event");
    post_software_event(evd);
    EXPECT(take(evd, &event) == 1, "there is an event");
    OK(dat_evd_free(evd));
    EXPECT(take(evd, &event) == -1, "the EVD is freed");
}
