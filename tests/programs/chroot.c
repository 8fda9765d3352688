/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server opens its adapter, listens, and then changes its root to an empty directory, where it
 * finds neither /proc nor /tmp. It accepts connections of another process and exchanges messages
 * with it. Meanwhile, requests for another server of this user, which keeps its root, arrive there:
 * the two share UDP port 4791 over softroce. At the end each side learns that the other one has
 * disconnected.
 *
 * Only root may change its root. Other users keep it.
 */

#include "dat_test.h"

enum { CONNECTIONS = 5, LENGTH = 64 };

static char directory[] = "/tmp/root-XXXXXX";

static void change_root(void)
{
    EXPECT(chroot(directory) == 0 && chdir("/") == 0, "chroot: %s", strerror(errno));
    EXPECT(access("/proc", F_OK) != 0 && access("/tmp", F_OK) != 0, "the root has not changed");
}

static void expect_disconnected(struct end *end)
{
    DAT_EVENT event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
}

/* Receives a message, and makes the endpoint ready for the next connection. */
static void receive_one(struct end *end)
{
    DAT_EVENT event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "the receive has failed");
    EXPECT(end->buffer[0] == 'x', "the message is wrong");
}

static void serve(int fd, bool changes_root)
{
    struct end end;
    struct introduction self = {.port = free_port()};
    DAT_PSP_HANDLE psp;

    end_open(&end, LENGTH, 4);
    OK(dat_psp_create(end.ia, self.port, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    if (changes_root && geteuid() == 0)
        change_root();
    EXPECT(write(fd, &self, sizeof self) == sizeof self, "the peer has gone");
    for (int i = 0; i < CONNECTIONS; i++) {
        post_receives(&end, 1, LENGTH);
        accept_next(end.cr, end.ep, end.connect);
        receive_one(&end);
        expect_disconnected(&end);
        OK(dat_ep_reset(end.ep));
    }
    OK(dat_psp_free(psp));
    end_close(&end);
}

static void call(struct end *end, DAT_CONN_QUAL port)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    end->buffer[0] = 'x';
    start_connect(end->ep, port);
    wait_established(end->connect);
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(wait_event(end->request).event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "the send has failed");
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    expect_disconnected(end);
    OK(dat_ep_reset(end->ep));
}

int main(void)
{
    enum { SERVERS = 2 };
    pid_t children[SERVERS];
    DAT_CONN_QUAL ports[SERVERS];
    struct end end;

    EXPECT(mkdtemp(directory), "mkdtemp: %s", strerror(errno));
    for (int i = 0; i < SERVERS; i++) {
        struct introduction peer;
        int fds[2];
        EXPECT(pipe(fds) == 0, "pipe: %s", strerror(errno));
        fflush(stdout);
        children[i] = fork();
        EXPECT(children[i] >= 0, "fork: %s", strerror(errno));
        if (children[i] == 0) {
            serve(fds[1], i == 0);
            exit(0);
        }
        close(fds[1]);
        EXPECT(read(fds[0], &peer, sizeof peer) == sizeof peer, "no port");
        close(fds[0]);
        ports[i] = peer.port;
    }
    end_open(&end, LENGTH, 4);
    for (int i = 0; i < CONNECTIONS; i++)
        for (int server = 0; server < SERVERS; server++)
            call(&end, ports[server]);
    end_close(&end);
    for (int i = 0; i < SERVERS; i++)
        join(children[i]);
    rmdir(directory);
    puts("ok");
    return 0;
}
