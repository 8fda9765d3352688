/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_RMR_HANDLE rmr;

    EXPECT(make_rmr(here.pz, &rmr) == 0, "no RMR");
    OK(dat_rmr_free(rmr));
}
