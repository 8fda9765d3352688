/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_SRQ_HANDLE srq = new_srq(16);
    DAT_EVENT event;

    use_srq(srq);
    for (int i = 0; i < 8; i++) {
        DAT_LMR_TRIPLET buffer = local_segment(&here, (size_t)i * 64, 64);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)i};
        OK(dat_srq_post_recv(srq, 1, &buffer, cookie));
    }
    OK(limit_buffers(srq, here.ep));
    connect_ends();
    /* The endpoint holds three buffers, and an eighth of sixteen is two. */
    for (int i = 0; i < 3; i++)
        send_message(&there);
    event = wait_event(here.async);
    EXPECT(busy_ep(&event) == here.ep, "event 0x%x", event.event_number);
}
