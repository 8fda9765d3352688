/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A process is stopped for six seconds, as by a debugger or Ctrl-Z, with messages under way in both
 * directions. Neither side loses the connection, and every message arrives after the process has
 * continued.
 *
 *   stopped_peer called   the passive side is stopped
 *   stopped_peer caller   the active side is stopped
 */

#include "dat_test.h"

enum { MESSAGES = 16, LENGTH = 64 << 10, SECONDS = 6 };
#define BUFFER ((size_t)2 * MESSAGES * LENGTH)

/* The second half of the buffer is sent. The first half receives. */
static void send_all(struct end *end)
{
    memset(end->buffer + BUFFER / 2, 0x5a, BUFFER / 2);
    for (DAT_COUNT i = 0; i < MESSAGES; i++) {
        DAT_LMR_TRIPLET segment = local_segment(end, (size_t)(MESSAGES + i) * LENGTH, LENGTH);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)i};
        OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
}

static void expect_all(DAT_EVD_HANDLE evd, const char *what)
{
    for (DAT_COUNT i = 0; i < MESSAGES; i++) {
        DAT_EVENT event = wait_event(evd);
        DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        EXPECT(dto->status == DAT_DTO_SUCCESS, "%s %d has status %d", what, i, dto->status);
        EXPECT(dto->user_cookie.as_64 == (DAT_UINT64)i, "%s %d comes in place of %d", what,
               (int)dto->user_cookie.as_64, i);
    }
}

static void expect_end(struct end *end)
{
    DAT_EVENT event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
}

int main(int argc, char **argv)
{
    bool caller_stops = argc == 2 && strcmp(argv[1], "caller") == 0;
    int pipe_ends[2], status;
    DAT_COUNT left;
    DAT_EVENT event;
    struct end end;
    pid_t peer;

    EXPECT(caller_stops || (argc == 2 && strcmp(argv[1], "called") == 0),
           "usage: stopped_peer called|caller");
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    /* The fork comes before DAT is used, so the processes share no state of the library. */
    peer = fork();
    EXPECT(peer >= 0, "fork: %s", strerror(errno));
    end_open(&end, BUFFER, 2 * MESSAGES);
    post_receives(&end, MESSAGES, LENGTH);
    if (caller_stops == (peer == 0))
        connect_to(&end, pipe_ends[0]);
    else
        serve_one(&end, pipe_ends[1]);
    if (peer == 0) {
        send_all(&end);
        EXPECT(raise(SIGSTOP) == 0, "raise: %s", strerror(errno));
        expect_all(end.request, "send");
        expect_all(end.recv, "receive");
        expect_end(&end);
        end_close(&end);
        return 0;
    }
    EXPECT(waitpid(peer, &status, WUNTRACED) == peer && WIFSTOPPED(status),
           "the peer has not stopped: status 0x%x", status);
    send_all(&end);
    EXPECT(DAT_GET_TYPE(dat_evd_wait(end.connect, SECONDS * SECOND, 1, &event, &left)) ==
               DAT_TIMEOUT_EXPIRED,
           "the connection has ended: event 0x%x", event.event_number);
    EXPECT(kill(peer, SIGCONT) == 0, "kill: %s", strerror(errno));
    expect_all(end.request, "send");
    expect_all(end.recv, "receive");
    OK(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
    expect_end(&end);
    join(peer);
    end_close(&end);
    puts("ok");
    return 0;
}
