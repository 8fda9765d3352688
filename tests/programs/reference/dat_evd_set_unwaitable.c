/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static DAT_EVD_HANDLE evd;
static DAT_RETURN result;

static void *wait_on_evd(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    result = dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    return NULL;
}

static void use_example(void)
{
    evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, DAT_HANDLE_NULL);
    EXPECT(stop(evd, start(wait_on_evd, NULL)) == 0, "not stopped");
    EXPECT(DAT_GET_TYPE(result) == DAT_INVALID_STATE, "%s", status_text(result));
}
