/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "output.h"

static void use_example(void)
{
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE evd;
    char line[80];

    EXPECT(create_handled_evd(here.ia, &cno, &evd) == 0, "no EVD");
    replace_ep(&here, here.recv, here.request, evd);
    listen_to_output();
    DAT_CR_HANDLE request = request_from_here();
    OK(dat_cr_accept(request, there.ep, 0, NULL));
    next_line(line, sizeof line);
    EXPECT(strcmp(line, "DAT_CONNECTION_EVENT_ESTABLISHED\n") == 0, "%s", line);
    stop_listening_to_output();
}
