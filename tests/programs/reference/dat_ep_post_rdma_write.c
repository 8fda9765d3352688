/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    connect_ends();
    strcpy(here.buffer, "of here");
    EXPECT(write_and_wait(here.ep, here.request, local_segment(&here, 0, 64),
                          remote_part(&there, 0, 64)) == 0, "the write failed");
    /* The write is in memory when a later message has arrived. */
    post_receives(&there, 2, 64);
    send_message(&here);
    completed(there.recv);
    EXPECT(strcmp(there.buffer, "of here") == 0, "the data are wrong");
}
