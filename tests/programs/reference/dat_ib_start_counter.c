/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    long long connections = count_connections(here.ia, connect_ends);

    EXPECT(connections == 1, "%lld connections", connections);
}
