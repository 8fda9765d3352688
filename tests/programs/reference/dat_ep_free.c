/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    connect_ends();
    EXPECT(close_connection(here.ep, here.connect) == 0, "not closed");
}
