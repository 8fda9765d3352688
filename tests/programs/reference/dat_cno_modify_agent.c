/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    static struct watch watch;
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE evd;
    DAT_EVENT event;

    OK(dat_cno_create(here.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, cno);
    EXPECT(watch_once(cno, &watch) == 0, "no agent");
    post_software_event(evd);
    while (__atomic_load_n(&watch.calls, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    OK(dat_evd_dequeue(evd, &event));
}
