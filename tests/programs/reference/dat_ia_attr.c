/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(has_atomic_operations(here.ia) == 1, "the adapter has atomic operations");
}
