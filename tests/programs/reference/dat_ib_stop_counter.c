/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    OK(print_frozen(here.ia, connect_ends));
}
