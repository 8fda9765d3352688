/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "csp.h"

static void use_example(void)
{
    EXPECT(port_of(new_csp(there.cr)) > 0, "no port");
}
