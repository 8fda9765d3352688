/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "datagrams.h"

static void use_example(void)
{
    DAT_EVENT event;

    if (!introduce_new())
        return;
    expect_datagram();
    strcpy(here.buffer, "datagram");
    do
        OK(send_to(asking, local_segment(&here, 0, 64), &to_answering));
    while (!arrives(&event));
    EXPECT(event.event_data.dto_completion_event_data.transfered_length == 64 + HEADER, "length");
    EXPECT(strcmp(there.buffer + HEADER, "datagram") == 0, "the data are wrong");
}
