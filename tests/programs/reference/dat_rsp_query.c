/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_RSP_HANDLE rsp;

    OK(dat_rsp_create(there.ia, free_port(), there.ep, there.cr, &rsp));
    EXPECT(show_rsp(rsp) == 0, "the query failed");
}
