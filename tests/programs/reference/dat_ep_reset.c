/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    connect_ends();
    OK(dat_ep_disconnect(here.ep, DAT_CLOSE_ABRUPT_FLAG));
    wait_event(here.connect);
    OK(prepare_again(here.ep, local_segment(&here, 0, 64)));
}
