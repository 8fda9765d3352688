/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(free_end(here.ep, here.lmr, here.pz) == 0, "not freed");
}
