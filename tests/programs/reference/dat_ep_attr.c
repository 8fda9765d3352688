/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EP_ATTR attributes;
    DAT_EP_HANDLE ep;

    OK(choose_attributes(here.ia, FRAME_DTOS, &attributes));
    OK(dat_ep_create(here.ia, here.pz, here.recv, here.request, here.connect, &attributes, &ep));
    OK(dat_ep_free(ep));
}
