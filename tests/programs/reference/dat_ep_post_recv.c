/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    connect_ends();
    OK(post_buffers(here.ep, here.buffer, here.lmr_context, 64, 4));
    send_message(&there);
    completed(here.recv);
}
