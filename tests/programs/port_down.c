/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the asynchronous EVD says when the link below an adapter goes down: once that it is of no use, with the adapter's handle.
 * Says "open" when the link may go.
 */

#include "dat_test.h"

int main(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_EVENT event;
    DAT_ASYNCH_ERROR_EVENT_DATA *error = &event.event_data.asynch_error_event_data;
    DAT_COUNT more;

    OK(dat_ia_open(ia_under_test(), 8, &async, &ia));
    puts("open");
    fflush(stdout);
    OK(dat_evd_wait(async, PATIENCE, 1, &event, &more));
    EXPECT(event.event_number == DAT_ASYNC_ERROR_IA_CATASTROPHIC, "event 0x%x", event.event_number);
    EXPECT(error->dat_handle == ia, "of handle %p", error->dat_handle);
    EXPECT((int)error->reason == DAT_IA_OTHER_ERROR, "for reason %d", (int)error->reason);
    EXPECT(more == 0, "%d more", (int)more);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    puts("ok");
    return 0;
}
