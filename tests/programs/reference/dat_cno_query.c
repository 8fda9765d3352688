/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_CNO_HANDLE cno;

    OK(dat_cno_create(here.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    EXPECT(show_cno(cno) == 0, "the query failed");
}
