/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(!can_replace(ia_under_test(), ia_under_test()), "an adapter cannot replace itself");
}
