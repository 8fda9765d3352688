/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&there, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG,
                                 DAT_HANDLE_NULL);
    DAT_PSP_HANDLE psp;

    start_connect(here.ep, listen_there(there.cr, DAT_PSP_PROVIDER_FLAG, &psp));
    OK(accept_with_own_ep(request_on(there.cr), there.pz, evd));
    wait_established(evd);
    wait_established(here.connect);
}
