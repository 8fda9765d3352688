/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_CNO_HANDLE old, new;
    DAT_EVD_HANDLE evd, triggered;

    OK(dat_cno_create(here.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &old));
    OK(dat_cno_create(here.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &new));
    evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, old);
    EXPECT(move_evd(evd, old, new) == 0, "not moved");
    post_software_event(evd);
    OK(dat_cno_wait(new, WAIT_LIMIT, &triggered));
    EXPECT(triggered == evd, "another EVD has triggered the CNO");
}
