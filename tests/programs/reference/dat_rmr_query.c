/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "rmr.h"

static void use_example(void)
{
    DAT_RMR_HANDLE rmr = new_rmr(&here);

    EXPECT(bound_length(rmr) == 0, "the RMR is not bound yet");
    with_binds(&here);
    connect_ends();
    bind_window(&here, rmr, 0, 64);
    EXPECT(bound_length(rmr) == 64, "the RMR is bound to 64 octets");
}
