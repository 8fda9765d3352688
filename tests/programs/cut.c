/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two processes send to each other without pause until the network between them is cut for good.
 * Each prints the event that reports the end of the connection. Every operation that it has posted
 * must complete.
 *
 *   cut server PORT
 *   cut client PORT          (the server's address is in OPENDAT_TEST_ADDRESS)
 *   cut client PORT stalled  (the client posts no receive after its first ones, so that a message
 *                            waits and the server's sends stop)
 */

#include "dat_test.h"

#include <sched.h>

enum { DTOS = 32, LENGTH = 64, SEND = 1000 };

static struct end self;
static int outstanding;
static bool stalled;

static void post_receive(DAT_UINT64 place)
{
    DAT_LMR_TRIPLET segment = local_segment(&self, (size_t)place * LENGTH, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = place};
    if (dat_ep_post_recv(self.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG) == DAT_SUCCESS)
        outstanding++;
}

static void post_send(void)
{
    DAT_LMR_TRIPLET segment = local_segment(&self, DTOS * LENGTH, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = SEND};
    /* The post fails if the connection has ended. Then no completion will arrive. */
    if (dat_ep_post_send(self.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG) == DAT_SUCCESS)
        outstanding++;
}

/*
 * Takes a completion, if there is one, and posts the same operation again while the connection
 * lasts.
 */
static bool take_and_repost(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_DTO_COMPLETION_EVENT_DATA *done = &event.event_data.dto_completion_event_data;
    if (dat_evd_dequeue(evd, &event) != DAT_SUCCESS)
        return false;
    outstanding--;
    if (done->status != DAT_DTO_SUCCESS)
        return true;
    if (done->user_cookie.as_64 == SEND)
        post_send();
    else if (!stalled)
        post_receive(done->user_cookie.as_64);
    return true;
}

int main(int argc, char **argv)
{
    DAT_CONN_QUAL port = argc >= 3 ? (DAT_CONN_QUAL)strtoul(argv[2], NULL, 10) : 0;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    EXPECT(port != 0, "usage: cut server|client PORT [stalled]");
    stalled = argc > 3;
    end_open(&self, (DTOS + 1) * LENGTH, DTOS);
    for (DAT_UINT64 place = 0; place < DTOS; place++)
        post_receive(place);
    if (strcmp(argv[1], "server") == 0) {
        OK(dat_psp_create(self.ia, port, self.cr, DAT_PSP_CONSUMER_FLAG, &psp));
        puts("ready");
        accept_next(self.cr, self.ep, self.connect);
        OK(dat_psp_free(psp));
    } else {
        start_connect(self.ep, port);
        wait_established(self.connect);
    }
    post_send();
    while (dat_evd_dequeue(self.connect, &event) != DAT_SUCCESS)
        if (!take_and_repost(self.request) & !take_and_repost(self.recv))
            sched_yield();
    printf("the end: event 0x%x\n", event.event_number);
    while (outstanding > 0)
        if (!take_and_repost(self.request) & !take_and_repost(self.recv))
            sched_yield();
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(self.connect, &event)) == DAT_QUEUE_EMPTY,
           "a second event: 0x%x", event.event_number);
    end_close(&self);
    puts("ok");
    return 0;
}
