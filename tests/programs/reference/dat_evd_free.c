/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&here, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG,
                                 DAT_HANDLE_NULL);

    EXPECT(tear_down(new_ep(&here, evd, evd, evd), evd) == 0, "not freed");
}
