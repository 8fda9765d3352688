/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_SRQ_HANDLE srq = new_srq(8);
    DAT_SRQ_PARAM before, after;

    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &before));
    OK(extend_srq(srq, 8));
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &after));
    EXPECT(after.max_recv_dtos >= before.max_recv_dtos + 8, "%d buffers", after.max_recv_dtos);
}
