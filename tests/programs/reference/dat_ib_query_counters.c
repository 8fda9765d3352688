/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    connect_ends();
    expect_message(&there);
    send_message(&here);
    OK(print_sends(here.ep));
}
