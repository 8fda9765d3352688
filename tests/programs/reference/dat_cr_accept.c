/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(accept_request(request_from_here(), there.ep, there.connect) == 0, "not accepted");
    wait_established(here.connect);
}
