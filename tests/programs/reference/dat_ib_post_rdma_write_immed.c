/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_UINT32 number;
    DAT_EVENT event;

    connect_ends();
    expect_message(&there);
    strcpy(here.buffer, "block");
    OK(write_block(here.ep, local_segment(&here, 0, 64), remote_part(&there, 64, 64), 17));
    completed(here.request);
    event = wait_event(there.recv);
    EXPECT(is_block(&event, &number), "event 0x%x", event.event_number);
    EXPECT(number == 17, "block %u", number);
    EXPECT(strcmp(there.buffer + 64, "block") == 0, "the data are wrong");
}
