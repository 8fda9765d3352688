/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_SRQ_HANDLE srq = new_srq(8);

    use_srq(srq);
    OK(free_both(here.ep, srq));
}
