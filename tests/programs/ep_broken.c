/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Checks the report of a failed endpoint. The device fails the endpoint, as siw does when it cannot
 * read the memory that it must send. The request must fail, the connection must break, and the
 * asynchronous EVD must report once which endpoint has failed.
 */

#include "dat_test.h"

int main(void)
{
    int pipe_ends[2];
    struct end end;
    pid_t peer;
    DAT_EVENT event;
    DAT_COUNT more;

    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    peer = fork();
    EXPECT(peer >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096, 8);
    if (peer == 0) {
        serve_one(&end, pipe_ends[1]);
        event = wait_event(end.connect);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
                   event.event_number == DAT_CONNECTION_EVENT_BROKEN,
               "event 0x%x", event.event_number);
    } else {
        struct introduction introduction = connect_to(&end, pipe_ends[0]);
        DAT_LMR_TRIPLET local = local_segment(&end, 0, 4096);
        DAT_RMR_TRIPLET remote = remote_segment(&introduction, 0, 4096);
        DAT_DTO_COOKIE cookie = {.as_64 = 7};
        DAT_ASYNCH_ERROR_EVENT_DATA *error = &event.event_data.asynch_error_event_data;

        local.lmr_context ^= 0x5a;
        OK(dat_ep_post_rdma_write(end.ep, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
        event = wait_event(end.request);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_LOCAL_PROTECTION,
               "status %d", event.event_data.dto_completion_event_data.status);
        OK(dat_evd_wait(end.async, WAIT_LIMIT, 1, &event, &more));
        EXPECT(event.event_number == DAT_ASYNC_ERROR_EP_BROKEN, "event 0x%x", event.event_number);
        EXPECT(error->dat_handle == end.ep, "the event names handle %p", error->dat_handle);
        EXPECT(more == 0, "%d more asynchronous events", (int)more);
        event = wait_event(end.connect);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_BROKEN, "event 0x%x", event.event_number);
    }
    end_close(&end);
    if (peer != 0) {
        join(peer);
        puts("ok");
    }
    return 0;
}
