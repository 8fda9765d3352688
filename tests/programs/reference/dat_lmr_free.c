/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(free_buffer(here.lmr, here.buffer) == 0, "not freed");
}
