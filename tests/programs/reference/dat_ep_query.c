/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(print_peer(here.ep) == -1, "the endpoint has no peer yet");
    connect_ends();
    EXPECT(print_peer(here.ep) == 0, "the endpoint has a peer");
}
