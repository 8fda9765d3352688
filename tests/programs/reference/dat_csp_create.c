/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_CSP_HANDLE csp;

    EXPECT(listen_on_port(there.ia, 0, there.cr, &csp) == 0, "no service point");
    OK(dat_csp_free(csp));
}
