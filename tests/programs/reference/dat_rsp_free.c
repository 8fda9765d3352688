/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_CONN_QUAL port = free_port();
    DAT_RSP_HANDLE rsp;

    OK(dat_rsp_create(there.ia, port, there.ep, there.cr, &rsp));
    EXPECT(give_up(rsp, there.ep) == 0, "there was no request");
    port = free_port();
    OK(dat_rsp_create(there.ia, port, there.ep, there.cr, &rsp));
    start_connect(here.ep, port);
    request_on(there.cr);
    EXPECT(give_up(rsp, there.ep) == 1, "there was a request");
}
