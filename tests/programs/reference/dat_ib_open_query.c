/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(print_limit(ia_under_test()) == 0, "the query failed");
}
