/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The RDMA device below two connected adapters is removed. Each adapter reports once that it can no
 * longer be used, each connection ends, and posted operations are flushed. Afterwards no connection
 * can be made over the device, and all objects can be freed.
 *
 * The program prints "open" when the device may be removed.
 */

#include "dat_test.h"

enum { SIZE = 4096, DTOS = 4 };

static void expect_flushed(DAT_EVD_HANDLE evd, DAT_COUNT count)
{
    for (DAT_COUNT i = 0; i < count; i++) {
        DAT_EVENT event = wait_event(evd);
        DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT, "event 0x%x", event.event_number);
        EXPECT(dto->status == DAT_DTO_ERR_FLUSHED, "status %d", dto->status);
    }
}

static void expect_lost(struct end *end)
{
    DAT_EVENT event = wait_event(end->async);
    DAT_ASYNCH_ERROR_EVENT_DATA *error = &event.event_data.asynch_error_event_data;
    DAT_LMR_TRIPLET segment = local_segment(end, 0, SIZE);
    DAT_DTO_COOKIE cookie = {.as_64 = 7};

    EXPECT(event.event_number == DAT_ASYNC_ERROR_IA_CATASTROPHIC, "event 0x%x", event.event_number);
    EXPECT(error->dat_handle == end->ia, "the event names handle %p", error->dat_handle);
    EXPECT((int)error->reason == DAT_IA_CATASTROPHIC_ERROR, "the event gives reason %d",
           (int)error->reason);

    event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_BROKEN ||
               event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED,
           "event 0x%x", event.event_number);
    expect_flushed(end->recv, DTOS);
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    expect_flushed(end->request, 1);
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->async, &event)) == DAT_QUEUE_EMPTY, "event 0x%x",
           event.event_number);
}

/* Expects that a connection attempt fails: the peer is unreachable, or the attempt times out. */
static void expect_unreachable(struct end *end, DAT_CONN_QUAL port)
{
    DAT_EVENT event;
    OK(dat_ep_reset(end->ep));
    start_connect(end->ep, port);
    event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_UNREACHABLE ||
               event.event_number == DAT_CONNECTION_EVENT_TIMED_OUT,
           "event 0x%x", event.event_number);
}

int main(void)
{
    DAT_CONN_QUAL port = free_port();
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_PSP_HANDLE psp;
    DAT_IA_HANDLE ia;
    struct end ends[2];

    for (int i = 0; i < 2; i++) {
        end_open(&ends[i], (size_t)DTOS * SIZE, DTOS);
        post_receives(&ends[i], DTOS, SIZE);
    }
    OK(dat_psp_create(ends[0].ia, port, ends[0].cr, DAT_PSP_CONSUMER_FLAG, &psp));
    start_connect(ends[1].ep, port);
    accept_next(ends[0].cr, ends[0].ep, ends[0].connect);
    wait_established(ends[1].connect);
    puts("open");
    fflush(stdout);
    for (int i = 0; i < 2; i++)
        expect_lost(&ends[i]);
    expect_unreachable(&ends[1], port);
    OK(dat_psp_free(psp));
    for (int i = 0; i < 2; i++)
        end_close(&ends[i]);
    EXPECT(dat_ia_open(ia_under_test(), 8, &async, &ia) != DAT_SUCCESS,
           "an adapter opens on a device that was removed");
    puts("ok");
    return 0;
}
