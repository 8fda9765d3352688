/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A service point takes requests as soon as dat_psp_create has returned. A server in another
 * process creates many service points, on adapters that it has just opened, and rejects one request
 * at each. A request that comes too early for a service point ends differently: nobody rejects it.
 */

#include "dat_test.h"

enum { ADAPTERS = 10, SERVICE_POINTS = 20 };

static void reject_one(struct end *end, int fd)
{
    DAT_CONN_QUAL port = free_port();
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    OK(dat_psp_create(end->ia, port, end->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    EXPECT(write(fd, &port, sizeof port) == sizeof port, "the client has gone");
    event = wait_event(end->cr);
    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "no request: event 0x%x",
           event.event_number);
    OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
    OK(dat_psp_free(psp));
}

static void serve(int fd)
{
    struct end end;
    for (int i = 0; i < ADAPTERS; i++) {
        end_open(&end, 4096, 1);
        for (int j = 0; j < SERVICE_POINTS; j++)
            reject_one(&end, fd);
        end_close(&end);
    }
}

static void be_rejected(struct end *end, int fd)
{
    DAT_CONN_QUAL port;
    DAT_EVENT event;
    EXPECT(read(fd, &port, sizeof port) == sizeof port, "the server has gone");
    start_connect(end->ep, port);
    event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED,
           "the server has not rejected the request: event 0x%x", event.event_number);
    OK(dat_ep_reset(end->ep));
}

int main(void)
{
    int to_client[2];
    struct end end;
    pid_t server;

    EXPECT(pipe(to_client) == 0, "pipe: %s", strerror(errno));
    server = fork();
    EXPECT(server >= 0, "fork: %s", strerror(errno));
    if (server == 0) {
        close(to_client[0]);
        serve(to_client[1]);
        return 0;
    }
    close(to_client[1]);
    end_open(&end, 4096, 1);
    for (int i = 0; i < ADAPTERS * SERVICE_POINTS; i++)
        be_rejected(&end, to_client[0]);
    end_close(&end);
    join(server);
    puts("ok");
    return 0;
}
