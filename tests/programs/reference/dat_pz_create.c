/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&here, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG,
                                 DAT_HANDLE_NULL);
    DAT_REGION_DESCRIPTION memory = {.for_va = here.buffer};
    DAT_PZ_HANDLE pz;
    DAT_LMR_HANDLE lmr;
    DAT_RMR_CONTEXT context;
    DAT_EP_HANDLE ep;

    OK(create_private_end(here.ia, evd, memory, FRAME_SIZE, &pz, &lmr, &context, &ep));
    OK(dat_ep_free(ep));
    OK(dat_lmr_free(lmr));
    OK(dat_pz_free(pz));
}
