/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(can_open(ia_under_test()), "the adapter can be opened");
    EXPECT(!can_open("no such adapter"), "there is no such adapter");
}
