/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_SRQ_HANDLE srq;
    DAT_SRQ_PARAM param;

    OK(make_srq(here.ia, here.pz, here.buffer, here.lmr_context, 64, &srq));
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
    EXPECT(param.low_watermark == 16, "low watermark %d", param.low_watermark);
}
