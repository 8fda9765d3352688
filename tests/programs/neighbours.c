/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Many processes use one address: pairs of a writer and its target. One process after the other is
 * killed (SIGKILL) in the middle of its transfer. The first of them is the process that has used
 * the address for the longest time. Only the peer of a killed process is disconnected. For all
 * others, every octet and every message must arrive once and in order. A new pair replaces each
 * broken pair. When all processes have ended, RoCE's UDP port must be free.
 */

#include "dat_test.h"

#include <sys/mman.h>
#include <sys/prctl.h>

enum {
    PAIRS = 4,
    MAX_PAIRS = 2 * PAIRS,
    WINDOW = 4,
    BLOCK = 64 << 10,
    MESSAGE = sizeof(DAT_UINT64)
};
/* The buffer holds blocks, then messages to send, then received messages. */
#define OUTGOING ((size_t)WINDOW * BLOCK)
#define INCOMING (OUTGOING + (size_t)WINDOW * MESSAGE)
#define BUFFER (INCOMING + (size_t)WINDOW * MESSAGE)
/* The number of blocks that a pair must move in each check for progress. */
#define PROGRESS_BLOCKS 64u
#define ROCE_PORT 4791

struct pair {
    pid_t target, writer;
    volatile bool opened, breaks;
    volatile DAT_UINT64 written, verified;
};

/* Memory that all processes share. */
struct shared {
    struct pair pairs[MAX_PAIRS];
    volatile bool stop;
};

static struct shared *shared;

/* The n-th word of a block. */
static DAT_UINT64 word(DAT_UINT64 block, size_t n)
{
    return block * 0x9e3779b97f4a7c15u + n;
}

static DAT_UINT64 *words(const struct end *end, DAT_UINT64 block)
{
    return (DAT_UINT64 *)(void *)(end->buffer + block % WINDOW * BLOCK);
}

static DAT_UINT64 *message(const struct end *end, size_t area, DAT_UINT64 block)
{
    return (DAT_UINT64 *)(void *)(end->buffer + area + block % WINDOW * MESSAGE);
}

/* Takes the next completion. Returns true if it is a success, false if the peer was killed. */
static bool completes_with_success(DAT_EVD_HANDLE evd, const struct pair *pair, DAT_UINT64 cookie)
{
    DAT_EVENT event = wait_event(evd);
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT, "event 0x%x", event.event_number);
    EXPECT(dto->user_cookie.as_64 == cookie, "completion %lu in place of %lu",
           (unsigned long)dto->user_cookie.as_64, (unsigned long)cookie);
    EXPECT(dto->status == DAT_DTO_SUCCESS || pair->breaks, "status %d, but the peer was not killed",
           dto->status);
    return dto->status == DAT_DTO_SUCCESS;
}

static void post_receive(struct end *end, DAT_UINT64 block)
{
    DAT_LMR_TRIPLET segment = local_segment(end, INCOMING + block % WINDOW * MESSAGE, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = block};
    OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void send_number(struct end *end, DAT_UINT64 block)
{
    DAT_LMR_TRIPLET segment = local_segment(end, OUTGOING + block % WINDOW * MESSAGE, MESSAGE);
    DAT_DTO_COOKIE cookie = {.as_64 = block};
    *message(end, OUTGOING, block) = block;
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void write_block(struct end *end, const struct introduction *peer, DAT_UINT64 block)
{
    DAT_LMR_TRIPLET local = local_segment(end, block % WINDOW * BLOCK, BLOCK);
    DAT_RMR_TRIPLET remote = remote_segment(peer, block % WINDOW * BLOCK, BLOCK);
    DAT_DTO_COOKIE cookie = {.as_64 = block};
    for (size_t n = 0; n < BLOCK / sizeof(DAT_UINT64); n++)
        words(end, block)[n] = word(block, n);
    OK(dat_ep_post_rdma_write(end->ep, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    send_number(end, block);
}

static void expect_end_of_connection(struct end *end)
{
    DAT_EVENT event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
               event.event_number == DAT_CONNECTION_EVENT_BROKEN,
           "event 0x%x in place of disconnected or broken", event.event_number);
}

/*
 * Writes blocks, each followed by a message, until `stop` is set. When the peer has answered a
 * block, the block's space in the buffer is used for another block.
 */
static void write_blocks(struct end *end, struct pair *pair, const struct introduction *peer)
{
    DAT_UINT64 written = 0, answered = 0;
    for (; written < WINDOW; written++)
        write_block(end, peer, written);
    for (; answered < written; answered++) {
        if (!completes_with_success(end->request, pair, answered) ||
            !completes_with_success(end->request, pair, answered) ||
            !completes_with_success(end->recv, pair, answered))
            return expect_end_of_connection(end);
        EXPECT(*message(end, INCOMING, answered) == answered, "the answer names another block");
        post_receive(end, answered + WINDOW);
        if (!shared->stop)
            write_block(end, peer, written++);
    }
    pair->written = written;
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    expect_end_of_connection(end);
}

/* Checks each block when its message has arrived, and answers with a message. */
static void verify_blocks(struct end *end, struct pair *pair)
{
    for (DAT_UINT64 block = 0;; block++) {
        DAT_EVENT event = wait_event(end->recv);
        if (event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS) {
            EXPECT(pair->breaks || shared->stop, "disconnected, but the peer was not killed");
            return expect_end_of_connection(end);
        }
        EXPECT(*message(end, INCOMING, block) == block, "message %lu in place of %lu",
               (unsigned long)*message(end, INCOMING, block), (unsigned long)block);
        for (size_t n = 0; n < BLOCK / sizeof(DAT_UINT64); n++)
            EXPECT(words(end, block)[n] == word(block, n), "block %lu is wrong at word %zu",
                   (unsigned long)block, n);
        pair->verified = block + 1;
        post_receive(end, block + WINDOW);
        send_number(end, block);
        if (!completes_with_success(end->request, pair, block))
            return expect_end_of_connection(end);
    }
}

static pid_t start(struct pair *pair, bool writes, int fd)
{
    struct end end;
    pid_t process = fork();
    EXPECT(process >= 0, "fork: %s", strerror(errno));
    if (process > 0)
        return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    end_open(&end, BUFFER, 4 * WINDOW);
    for (DAT_UINT64 block = 0; block < WINDOW; block++)
        post_receive(&end, block);
    pair->opened = true;
    if (writes) {
        struct introduction peer = connect_to(&end, fd);
        write_blocks(&end, pair, &peer);
    } else {
        serve_one(&end, fd);
        verify_blocks(&end, pair);
    }
    end_close(&end);
    exit(0);
}

static void start_pair(struct pair *pair)
{
    int pipe_ends[2];
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    pair->target = start(pair, false, pipe_ends[1]);
    while (!pair->opened) {
        EXPECT(waitpid(pair->target, NULL, WNOHANG) == 0,
               "a target has ended before it could listen");
        usleep(100);
    }
    pair->writer = start(pair, true, pipe_ends[0]);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static bool is_whole(const struct pair *pair)
{
    return pair->target && !pair->breaks;
}

/* Checks that data moves in every pair that has no killed process. */
static void expect_progress(void)
{
    DAT_UINT64 goals[MAX_PAIRS];
    double limit = now() + WAIT_LIMIT_SECONDS;
    for (int n = 0; n < MAX_PAIRS; n++)
        goals[n] = shared->pairs[n].verified + PROGRESS_BLOCKS;
    for (int n = 0; n < MAX_PAIRS; n++)
        while (is_whole(&shared->pairs[n]) && shared->pairs[n].verified < goals[n]) {
            EXPECT(now() < limit, "pair %d makes no progress after block %lu", n,
                   (unsigned long)shared->pairs[n].verified);
            usleep(100);
        }
}

static void kill_process(pid_t process)
{
    int status;
    EXPECT(kill(process, SIGKILL) == 0, "kill: %s", strerror(errno));
    EXPECT(waitpid(process, &status, 0) == process && WIFSIGNALED(status),
           "the process had already ended: status 0x%x", status);
}

/* Returns whether no socket has RoCE's port on the address of the processes. */
static bool port_is_free(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(ROCE_PORT)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    bool bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    EXPECT(bound || errno == EADDRINUSE, "bind: %s", strerror(errno));
    close(fd);
    return bound;
}

int main(void)
{
    struct pair *pairs, *newcomer;
    double limit;
    int status;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(shared != MAP_FAILED, "mmap failed");
    pairs = shared->pairs;
    newcomer = pairs + PAIRS;
    for (struct pair *pair = pairs; pair < pairs + PAIRS; pair++)
        start_pair(pair);
    expect_progress();
    EXPECT(port_is_free() != (strcmp(ia_under_test(), "softroce") == 0),
           "RoCE's port must be in use for softroce, and free for other adapters");

    /*
     * Three kills follow: the target of the first pair, then a writer, and then both processes of a
     * pair.
     */
    pairs[0].breaks = true;
    kill_process(pairs[0].target);
    expect_progress();
    join(pairs[0].writer);
    start_pair(newcomer++);

    pairs[1].breaks = true;
    kill_process(pairs[1].writer);
    expect_progress();
    join(pairs[1].target);
    start_pair(newcomer++);

    pairs[2].breaks = true;
    kill(pairs[2].writer, SIGKILL);
    kill(pairs[2].target, SIGKILL);
    /*
     * This process may have noticed that its peer ended, and have ended by itself a moment before.
     */
    EXPECT(waitpid(pairs[2].target, &status, 0) == pairs[2].target &&
               (WIFSIGNALED(status) || status == 0),
           "the process had failed before: status 0x%x", status);
    waitpid(pairs[2].writer, NULL, 0);
    start_pair(newcomer++);
    expect_progress();

    shared->stop = true;
    for (struct pair *pair = pairs; pair < newcomer; pair++) {
        if (!is_whole(pair))
            continue;
        join(pair->writer);
        join(pair->target);
        EXPECT(pair->written == pair->verified, "%lu blocks written, %lu arrived",
               (unsigned long)pair->written, (unsigned long)pair->verified);
        printf("pair %d: %lu blocks\n", (int)(pair - pairs), (unsigned long)pair->verified);
    }
    /*
     * A socket may be on its way in another socket's queue when the last process ends. The kernel
     * closes such a socket a moment later.
     */
    for (limit = now() + WAIT_LIMIT_SECONDS; !port_is_free(); usleep(1000))
        EXPECT(now() < limit, "all processes have ended, and the port is not free after %d s",
               WAIT_LIMIT_SECONDS);
    puts("ok");
    return 0;
}
