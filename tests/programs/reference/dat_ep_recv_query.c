/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(needs_receives(here.ep, 2) == 1, "no receive is posted yet");
    post_receives(&here, 2, 64);
    EXPECT(needs_receives(here.ep, 2) == 0, "two receives are posted");
}
