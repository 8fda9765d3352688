/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * When the link below an adapter goes down, the asynchronous EVD reports once that the adapter can
 * no longer be used, with the adapter's handle. The program prints "open" when the link may go
 * down.
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
    OK(dat_evd_wait(async, WAIT_LIMIT, 1, &event, &more));
    EXPECT(event.event_number == DAT_ASYNC_ERROR_IA_CATASTROPHIC, "event 0x%x", event.event_number);
    EXPECT(error->dat_handle == ia, "the event names handle %p", error->dat_handle);
    EXPECT((int)error->reason == DAT_IA_OTHER_ERROR, "the event gives reason %d",
           (int)error->reason);
    EXPECT(more == 0, "%d more asynchronous events", (int)more);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    puts("ok");
    return 0;
}
