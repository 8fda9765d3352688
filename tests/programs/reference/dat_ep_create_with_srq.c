/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_SRQ_HANDLE srq = new_srq(8);
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep;

    OK(create_for_client(here.ia, here.recv, here.connect, srq, &pz, &ep));
    OK(dat_ep_free(ep));
    OK(dat_pz_free(pz));
}
