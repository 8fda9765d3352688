/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, DAT_HANDLE_NULL);

    post_software_event(evd);
    post_software_event(evd);
    EXPECT(poll_evd(evd, 3) == 2, "there are two events");
}
