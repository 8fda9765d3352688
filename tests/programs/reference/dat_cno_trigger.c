/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE evd;
    int taken;

    OK(dat_cno_create(here.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, cno);
    post_software_event(evd);
    post_software_event(evd);
    EXPECT((taken = take_triggered(cno)) == 2, "%d events instead of 2", taken);
    EXPECT((taken = take_triggered(cno)) == 0, "%d events instead of none", taken);
}
