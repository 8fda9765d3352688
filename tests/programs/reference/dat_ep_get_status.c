/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(may_reuse_memory(here.ep) == 0, "the endpoint is not connected yet");
    connect_ends();
    EXPECT(may_reuse_memory(here.ep) == 1, "the endpoint is connected and idle");
}
