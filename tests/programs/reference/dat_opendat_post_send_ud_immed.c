/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "datagrams.h"

static void use_example(void)
{
    const DAT_IB_EXTENSION_EVENT_DATA *data;
    DAT_EVENT event;

    if (!introduce_new())
        return;
    expect_datagram();
    strcpy(here.buffer, "datagram");
    do
        OK(send_numbered(asking, local_segment(&here, 0, 64), &to_answering, 17));
    while (!arrives(&event));
    data = (const DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
    EXPECT(event.event_data.dto_completion_event_data.operation ==
           (DAT_DTOS)DAT_IB_DTO_RECV_UD_IMMED, "another operation");
    EXPECT(data->val.immed.data == 17, "another number");
    EXPECT(strcmp(there.buffer + HEADER, "datagram") == 0, "the data are wrong");
}
