/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_PSP_HANDLE psp;

    EXPECT(listen_anywhere(there.ia, there.cr, &psp) == 0, "no service point");
    OK(dat_psp_free(psp));
}
