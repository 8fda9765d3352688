/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    connect_ends();
    expect_message(&there);
    EXPECT(send_and_wait(here.ep, here.request, local_segment(&here, 0, 64)) == 0,
           "the send failed");
    completed(there.recv);
}
