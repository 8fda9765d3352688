/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_SRQ_HANDLE srq = new_srq(32);
    DAT_LMR_TRIPLET buffer = local_segment(&here, 0, 64);

    use_srq(srq);
    OK(dat_srq_post_recv(srq, 1, &buffer, (DAT_DTO_COOKIE){.as_64 = 0}));
    EXPECT(is_low(here.async, srq) == 0, "no event was requested");
    OK(ask_again(srq));
    connect_ends();
    send_message(&there);
    while (!is_low(here.async, srq))
        sched_yield();
}
