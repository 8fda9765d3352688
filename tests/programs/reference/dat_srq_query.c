/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_SRQ_HANDLE srq = new_srq(8);
    DAT_LMR_TRIPLET buffer = local_segment(&here, 0, 64);
    int places = places_left(srq);

    OK(dat_srq_post_recv(srq, 1, &buffer, (DAT_DTO_COOKIE){.as_64 = 0}));
    EXPECT(places >= 8 && places_left(srq) == places - 1, "%d places", places);
}
