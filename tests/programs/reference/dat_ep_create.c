/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EP_HANDLE ep;

    OK(create_ep(here.ia, here.pz, here.recv, here.connect, &ep));
    OK(dat_ep_free(ep));
}
