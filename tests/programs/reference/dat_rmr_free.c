/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "rmr.h"

static void use_example(void)
{
    DAT_RMR_HANDLE rmr = new_rmr(&here);

    with_binds(&here);
    connect_ends();
    bind_window(&here, rmr, 0, 64);
    OK(close_memory(rmr, here.lmr));
}
