/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = create_evd(here.ia);

    EXPECT(evd != DAT_HANDLE_NULL, "no EVD");
    OK(dat_evd_free(evd));
}
