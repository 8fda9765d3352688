/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_LMR_TRIPLET segment;

    EXPECT(segment_of(here.lmr, FRAME_SIZE, 1, &segment) == -1, "the part is outside the region");
    EXPECT(segment_of(here.lmr, 64, 64, &segment) == 0, "the part is in the region");
    connect_ends();
    OK(dat_ep_post_recv(here.ep, 1, &segment, (DAT_DTO_COOKIE){.as_64 = 1},
                        DAT_COMPLETION_DEFAULT_FLAG));
    strcpy(there.buffer, "of there");
    send_message(&there);
    completed(here.recv);
    EXPECT(strcmp(here.buffer + 64, "of there") == 0, "the data are wrong");
}
