/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    print_status("dat_ia_close", dat_ia_close(DAT_HANDLE_NULL, DAT_CLOSE_ABRUPT_FLAG));
    print_status("nothing", (DAT_RETURN)-1);

    DAT_EVENT event = {.event_number = DAT_CONNECTION_EVENT_BROKEN};
    print_event(&event);
}
