/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_HANDLE evd = new_evd(&here, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG,
                                 DAT_HANDLE_NULL);

    EXPECT(handle_event(evd) == -1, "there is no event");
    replace_ep(&here, evd, here.request, evd);
    OK(dat_cr_accept(request_from_here(), there.ep, 0, NULL));
    wait_established(there.connect);
    while (handle_event(evd) == -1)
        sched_yield();
    expect_message(&here);
    send_message(&there);
    while (handle_event(evd) == -1)
        sched_yield();
    OK(dat_ep_disconnect(here.ep, DAT_CLOSE_ABRUPT_FLAG));
    while (handle_event(evd) == -1)
        sched_yield();
}
