/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "csp.h"

static void use_example(void)
{
    DAT_CSP_HANDLE csp = new_csp(there.cr);

    OK(connect_to_port(here.ep, "127.0.0.1", csp_port(csp)));
    accept_next(there.cr, there.ep, there.connect);
    wait_established(here.connect);
}
