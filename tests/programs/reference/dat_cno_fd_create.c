/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_CNO_HANDLE cno;
    DAT_FD descriptor;
    DAT_EVD_HANDLE evd;
    int taken = 0;

    EXPECT(create_pollable(here.ia, &cno, &descriptor, &evd) == 0, "no EVD");
    replace_ep(&here, evd, here.request, here.connect);
    connect_ends();
    expect_message(&here);
    send_message(&there);
    while (taken == 0)
        taken = poll_events(cno, descriptor);
    EXPECT(taken == 1, "%d events", taken);
}
