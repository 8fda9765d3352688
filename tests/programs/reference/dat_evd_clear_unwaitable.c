/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, DAT_HANDLE_NULL);
    DAT_EVENT event;

    OK(dat_evd_set_unwaitable(evd));
    post_software_event(evd);
    EXPECT(reopen(evd) == 0, "the EVD cannot be waited on");
    EXPECT(dat_evd_dequeue(evd, &event) != DAT_SUCCESS, "the example has not taken the event");
}
