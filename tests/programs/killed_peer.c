/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The peer is killed (SIGKILL) in the middle of RDMA writes. The survivor gets a disconnected or
 * broken event, and all its posted operations complete: the first ones with success, the others
 * flushed. Its endpoint can be used for another connection.
 *
 * The status of the operations shows that the survivor has noticed the death itself. If it had only
 * noticed the silence of the peer, a request would have used up its retries and completed with a
 * transport error. A side that is idle or only receives repeats no request and would wait forever.
 * The program prints how long the survivor needs to notice the death, and does not judge this time.
 *
 *   killed_peer target   the survivor writes, and its target is killed
 *   killed_peer writer   the peer writes to the survivor, and this writer is killed
 *   killed_peer idle     no operation is under way when the peer is killed
 */

#include "dat_test.h"

enum { WINDOW = 16, RECEIVES = 8, LENGTH = 1 << 20 };
#define BUFFER ((size_t)(WINDOW + 1) * LENGTH)

static void post_write(struct end *end, const struct introduction *peer, DAT_UINT64 number)
{
    size_t slot = number % WINDOW;
    DAT_LMR_TRIPLET local = local_segment(end, slot * LENGTH, LENGTH);
    DAT_RMR_TRIPLET remote = remote_segment(peer, slot * LENGTH, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = number};
    OK(dat_ep_post_rdma_write(end->ep, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Writes until killed, with WINDOW writes outstanding. */
static void write_forever(struct end *end, const struct introduction *peer)
{
    DAT_UINT64 posted = 0;
    memset(end->buffer, 0x5a, end->size);
    for (; posted < WINDOW; posted++)
        post_write(end, peer, posted);
    for (;; posted++) {
        DAT_EVENT event = wait_event(end->request);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "a write failed");
        post_write(end, peer, posted);
    }
}

/*
 * Takes the completions of `count` posted operations, which come in order, flushed ones after
 * successful ones. Returns how many are flushed.
 */
static DAT_COUNT expect_completions(DAT_EVD_HANDLE evd, DAT_UINT64 first, DAT_COUNT count)
{
    DAT_COUNT flushed = 0;
    for (DAT_COUNT i = 0; i < count; i++) {
        DAT_EVENT event = wait_event(evd);
        DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
        EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT, "event 0x%x", event.event_number);
        EXPECT(dto->user_cookie.as_64 == first + (DAT_UINT64)i, "completion %lu in place of %lu",
               (unsigned long)dto->user_cookie.as_64, (unsigned long)(first + (DAT_UINT64)i));
        EXPECT(dto->status != DAT_DTO_ERR_TRANSPORT, "operation %d used up its retries", i);
        if (dto->status == DAT_DTO_SUCCESS)
            EXPECT(flushed == 0, "operation %d succeeded after one was flushed", i);
        else
            flushed++;
    }
    return flushed;
}

static void kill_and_be_disconnected(struct end *end, pid_t peer_process)
{
    double killed = now();
    DAT_EVENT event;

    EXPECT(kill(peer_process, SIGKILL) == 0, "kill: %s", strerror(errno));
    event = wait_event(end->connect);
    killed = now() - killed;
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
               event.event_number == DAT_CONNECTION_EVENT_BROKEN,
           "event 0x%x in place of disconnected or broken", event.event_number);
    EXPECT(event.event_data.connect_event_data.ep_handle == end->ep,
           "the event is for another endpoint");
    printf("disconnected %.1f ms after the kill\n", killed * 1e3);
}

/* The endpoint is disconnected, posts are flushed at once, and the queues hold nothing else. */
static void expect_disconnected_ep(struct end *end)
{
    DAT_EP_STATE state;
    DAT_BOOLEAN recv_idle, request_idle;
    DAT_LMR_TRIPLET segment = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 77};
    DAT_EVENT event;

    OK(dat_ep_get_status(end->ep, &state, &recv_idle, &request_idle));
    EXPECT(state == DAT_EP_STATE_DISCONNECTED, "state %d", state);
    EXPECT(recv_idle && request_idle, "the endpoint is not idle");
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(expect_completions(end->request, 77, 1) == 1, "a send over a dead connection succeeded");
    OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(expect_completions(end->recv, 77, 1) == 1, "a receive from a dead connection succeeded");
    EXPECT(DAT_GET_TYPE(dat_evd_dequeue(end->connect, &event)) == DAT_QUEUE_EMPTY,
           "there is a second connection event");
}

static void survive_idle(struct end *end, int fd, pid_t peer_process)
{
    post_receives(end, RECEIVES, LENGTH);
    connect_to(end, fd);
    kill_and_be_disconnected(end, peer_process);
    EXPECT(expect_completions(end->recv, 0, RECEIVES) == RECEIVES, "a receive succeeded");
    expect_disconnected_ep(end);
}

static void survive_target(struct end *end, int fd, pid_t peer_process)
{
    struct introduction peer;
    DAT_UINT64 posted = 0, completed = 0;

    post_receives(end, RECEIVES, LENGTH);
    peer = connect_to(end, fd);
    for (; posted < WINDOW; posted++)
        post_write(end, &peer, posted);
    /*
     * The kill comes while transfers are at full rate: at least 64 MiB have gone through, and
     * WINDOW writes are posted.
     */
    for (; completed < 64; completed++, posted++) {
        DAT_EVENT event = wait_event(end->request);
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
               "a write failed");
        post_write(end, &peer, posted);
    }
    kill_and_be_disconnected(end, peer_process);
    expect_completions(end->request, completed, (DAT_COUNT)(posted - completed));
    EXPECT(expect_completions(end->recv, 0, RECEIVES) == RECEIVES, "a receive succeeded");
    expect_disconnected_ep(end);
}

static void survive_writer(struct end *end, int fd, pid_t peer_process)
{
    volatile char *last = end->buffer + (size_t)WINDOW * LENGTH - 1;
    double limit = now() + WAIT_LIMIT_SECONDS;

    post_receives(end, RECEIVES, LENGTH);
    serve_one(end, fd);
    while (*last == 0)
        EXPECT(now() < limit, "the peer has not written within %d s", WAIT_LIMIT_SECONDS);
    kill_and_be_disconnected(end, peer_process);
    EXPECT(expect_completions(end->recv, 0, RECEIVES) == RECEIVES, "a receive succeeded");
    expect_disconnected_ep(end);
}

/* A process that serves the survivor's next connection, and ends when the survivor disconnects. */
static int be_successor(int wanted, int fd)
{
    struct end end;
    DAT_EVENT event;
    char byte;

    EXPECT(read(wanted, &byte, 1) == 1, "the survivor has ended");
    end_open(&end, BUFFER, 2 * WINDOW);
    serve_one(&end, fd);
    event = wait_event(end.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
    end_close(&end);
    return 0;
}

static void connect_again(struct end *end, int wanted, int fd, pid_t successor)
{
    struct introduction peer;
    DAT_EVENT event;

    OK(dat_ep_reset(end->ep));
    EXPECT(write(wanted, "", 1) == 1, "the successor has gone");
    peer = connect_to(end, fd);
    post_write(end, &peer, 0);
    EXPECT(expect_completions(end->request, 0, 1) == 0,
           "a write over the second connection failed");
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
    join(successor);
}

int main(int argc, char **argv)
{
    const char *who = argc == 2 ? argv[1] : "";
    bool writer_dies = strcmp(who, "writer") == 0, idle = strcmp(who, "idle") == 0;
    pid_t peer_process, successor;
    int pipe_ends[2], wanted[2];
    struct end end;

    EXPECT(writer_dies || idle || strcmp(who, "target") == 0,
           "usage: killed_peer target|writer|idle");
    EXPECT(pipe(pipe_ends) == 0 && pipe(wanted) == 0, "pipe: %s", strerror(errno));
    /* The fork comes before DAT is used, so the processes share no state of the library. */
    successor = fork();
    EXPECT(successor >= 0, "fork: %s", strerror(errno));
    if (successor == 0) {
        close(wanted[1]);
        return be_successor(wanted[0], pipe_ends[1]);
    }
    peer_process = fork();
    EXPECT(peer_process >= 0, "fork: %s", strerror(errno));
    end_open(&end, BUFFER, 2 * WINDOW);
    if (peer_process == 0) {
        if (writer_dies) {
            struct introduction peer = connect_to(&end, pipe_ends[0]);
            write_forever(&end, &peer);
        } else {
            serve_one(&end, pipe_ends[1]);
            for (;;)
                pause();
        }
    }
    if (writer_dies)
        survive_writer(&end, pipe_ends[1], peer_process);
    else if (idle)
        survive_idle(&end, pipe_ends[0], peer_process);
    else
        survive_target(&end, pipe_ends[0], peer_process);
    waitpid(peer_process, NULL, 0);
    connect_again(&end, wanted[1], pipe_ends[0], successor);
    end_close(&end);
    puts("ok");
    return 0;
}
