/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EP_HANDLE reserved = new_ep(&here, here.recv, here.request, here.connect);
    DAT_RSP_HANDLE rsp;

    OK(dat_rsp_create(here.ia, free_port(), reserved, here.cr, &rsp));
    OK(free_ep(reserved, rsp, DAT_HANDLE_NULL));
    connect_ends();
    OK(free_ep(here.ep, DAT_HANDLE_NULL, DAT_HANDLE_NULL));
}
