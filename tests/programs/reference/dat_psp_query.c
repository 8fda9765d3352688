/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_PSP_HANDLE psp;

    listen_there(there.cr, DAT_PSP_CONSUMER_FLAG, &psp);
    EXPECT(show_psp(psp) == 0, "the query failed");
}
