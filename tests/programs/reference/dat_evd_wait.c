/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_LMR_TRIPLET segment = local_segment(&here, 0, 64);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};

    connect_ends();
    expect_message(&there);
    OK(dat_ep_post_send(here.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(wait_for_completion(here.request) == 0, "no completion");
    EXPECT(wait_for_completion(there.recv) == 0, "no message");
}
