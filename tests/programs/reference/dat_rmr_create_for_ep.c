/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_RMR_HANDLE rmr;

    OK(make_private_rmr(here.pz, &rmr));
    OK(dat_rmr_free(rmr));
}
