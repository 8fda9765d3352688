/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A small message waits at its sender until the peer posts a receive. The peer must get the octets
 * that were in the memory when the message was posted (inline sends of provider-verbs), even if the
 * memory has been overwritten since.
 */

#include "dat_test.h"

enum { SMALL = 64 };

static void be_server(struct end *end, int introduction, int signal)
{
    DAT_EVENT event;
    char go;

    serve_one(end, introduction);
    EXPECT(read(signal, &go, 1) == 1, "the client has gone");
    post_receives(end, 1, SMALL);
    event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "receive: status %d", event.event_data.dto_completion_event_data.status);
    for (int i = 0; i < SMALL; i++)
        EXPECT(end->buffer[i] == 'a', "octet %d is %#x, not the posted one", i, end->buffer[i]);
    wait_event(end->connect);
}

static void be_client(struct end *end, int introduction, int signal)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, SMALL);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_EVENT event;

    connect_to(end, introduction);
    memset(end->buffer, 'a', SMALL);
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    /*
     * The standard forbids a program to write to the memory before the completion. This test does
     * so nevertheless, because nothing else shows whether the message was copied.
     */
    memset(end->buffer, 'b', SMALL);
    EXPECT(write(signal, "g", 1) == 1, "the server has gone");
    event = wait_event(end->request);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "send: status %d",
           event.event_data.dto_completion_event_data.status);
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_event(end->connect);
}

int main(void)
{
    int introduction[2], signal[2];
    struct end end;
    pid_t server;

    EXPECT(pipe(introduction) == 0 && pipe(signal) == 0, "pipe: %s", strerror(errno));
    server = fork();
    EXPECT(server >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096, 4);
    if (server == 0)
        be_server(&end, introduction[1], signal[0]);
    else
        be_client(&end, introduction[0], signal[1]);
    end_close(&end);
    if (server != 0) {
        join(server);
        puts("ok");
    }
    return 0;
}
