/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    connect_ends();
    strcpy(there.buffer, "of there");
    EXPECT(read_and_wait(here.ep, here.request, local_segment(&here, 0, 64),
                         remote_part(&there, 0, 64)) == 0, "the read failed");
    EXPECT(strcmp(here.buffer, "of there") == 0, "the data are wrong");
}
