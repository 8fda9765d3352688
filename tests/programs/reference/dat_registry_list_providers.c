/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(print_entries() == 0, "the list failed");
}
