/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(check_adapter(here.ia, 1, 16) == 0, "the adapter supports one segment");
    EXPECT(check_adapter(here.ia, 1000000, 16) == -1, "no adapter supports so many segments");
}
