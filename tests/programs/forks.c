/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A connected process forks. Its children execute another program, end in every way, call DAT with
 * their parent's handles (which is refused), or hold the descriptors that they inherited. None of
 * this may disturb the parent's connection or the end of it.
 */

#include "dat_test.h"

#include <dirent.h>

enum { ROUNDS = 40, SIZE = 4096, DTOS = 4 };

enum kind { EXECUTES, EXITS, EXITS_AT_ONCE, ABORTS, CALLS, KINDS };

/* `forks descriptors`: fails if any descriptor except the standard ones is open. */
static int count_descriptors(void)
{
    DIR *list = opendir("/proc/self/fd");
    struct dirent *entry;
    int open = 0;
    EXPECT(list != NULL, "no /proc");
    while ((entry = readdir(list)) != NULL) {
        int fd = atoi(entry->d_name);
        open += entry->d_name[0] != '.' && fd > 2 && fd != dirfd(list);
    }
    closedir(list);
    return open;
}

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        DAT_RETURN status_ = (call);                                                               \
        EXPECT(DAT_GET_TYPE(status_) == DAT_INVALID_HANDLE, "%s: %s", #call,                       \
               status_text(status_));                                                              \
    } while (0)

/* None of the parent's handles is valid in the child. */
static void call_everything(struct end *end)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, SIZE);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_EVD_HANDLE async;
    DAT_EP_STATE state;
    DAT_PZ_HANDLE pz;
    DAT_EVENT event;
    DAT_COUNT more;

    (void)*(volatile char *)end->buffer; /* the child can read its copy of the buffer */
    REFUSED(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    REFUSED(dat_evd_dequeue(end->request, &event));
    REFUSED(dat_evd_wait(end->connect, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    REFUSED(dat_ep_get_status(end->ep, &state, NULL, NULL));
    REFUSED(dat_ep_disconnect(end->ep, DAT_CLOSE_ABRUPT_FLAG));
    REFUSED(dat_ep_free(end->ep));
    REFUSED(dat_lmr_free(end->lmr));
    REFUSED(dat_ia_query(end->ia, &async, 0, NULL, 0, NULL));
    REFUSED(dat_pz_create(end->ia, &pz));
    REFUSED(dat_ia_close(end->ia, DAT_CLOSE_ABRUPT_FLAG));
}

static pid_t fork_one(enum kind kind, char *self, struct end *end)
{
    pid_t child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child != 0)
        return child;
    switch (kind) {
    case EXECUTES:
        execl(self, self, "descriptors", (char *)NULL);
        _exit(127);
    case EXITS:
        exit(0); /* runs the exit handlers, also those of the library */
    case EXITS_AT_ONCE:
        _exit(0);
    case CALLS:
        call_everything(end);
        exit(0);
    default:
        signal(SIGABRT, SIG_DFL);
        raise(SIGKILL);
        _exit(1);
    }
}

static void expect_end(pid_t child, enum kind kind)
{
    int status;
    EXPECT(waitpid(child, &status, 0) == child, "no child: %s", strerror(errno));
    if (kind == ABORTS)
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status 0x%x", status);
    else
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child of kind %d: status 0x%x", kind,
               status);
}

static void transfer(struct end *end, const struct introduction *peer, int round)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, SIZE);
    DAT_RMR_TRIPLET remote = remote_segment(peer, 0, SIZE);
    DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)round};
    DAT_EVENT event;

    memset(end->buffer, round + 1, SIZE);
    OK(dat_ep_post_rdma_write(end->ep, 1, &segment, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(end->request);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "write failed");
    segment = local_segment(end, SIZE, SIZE);
    OK(dat_ep_post_rdma_read(end->ep, 1, &segment, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(end->request);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "read failed");
    EXPECT(memcmp(end->buffer, end->buffer + SIZE, SIZE) == 0,
           "round %d: the octets that were read differ", round);
}

int main(int argc, char **argv)
{
    DAT_CLOSE_FLAGS close_flags;
    struct introduction peer;
    int to_parent[2], hold[2];
    struct end end;
    pid_t target, holder;
    DAT_EVENT event;
    int status;

    if (argc == 2 && strcmp(argv[1], "descriptors") == 0)
        return count_descriptors();
    EXPECT(argc == 2, "usage: forks graceful|abrupt");
    closefrom(3); /* descriptors that this program inherited */
    close_flags = strcmp(argv[1], "abrupt") == 0 ? DAT_CLOSE_ABRUPT_FLAG : DAT_CLOSE_GRACEFUL_FLAG;
    EXPECT(pipe(to_parent) == 0, "pipe: %s", strerror(errno));
    target = fork();
    EXPECT(target >= 0, "fork: %s", strerror(errno));
    if (target == 0) {
        end_open(&end, 2 * SIZE, DTOS);
        serve_one(&end, to_parent[1]);
        event = wait_event(end.connect);
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
               event.event_number);
        end_close(&end);
        return 0;
    }
    end_open(&end, 2 * SIZE, DTOS);
    peer = connect_to(&end, to_parent[0]);
    /* The program owns these descriptors, and a child would inherit them. */
    close(to_parent[0]);
    close(to_parent[1]);
    for (int round = 0; round < ROUNDS; round++) {
        enum kind kind = (enum kind)(round % KINDS);
        pid_t child = fork_one(kind, argv[0], &end);
        transfer(&end, &peer, round);
        expect_end(child, kind);
        transfer(&end, &peer, round);
    }

    /*
     * One child holds the connection's socket while the parent disconnects. The peer must still be
     * notified.
     */
    EXPECT(pipe(hold) == 0, "pipe: %s", strerror(errno));
    holder = fork();
    EXPECT(holder >= 0, "fork: %s", strerror(errno));
    if (holder == 0) {
        char byte;
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
    OK(dat_ep_disconnect(end.ep, close_flags));
    event = wait_event(end.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
    join(target);
    /*
     * The child that holds the socket is still alive, so the peer was not notified by the end of
     * that child.
     */
    EXPECT(waitpid(holder, &status, WNOHANG) == 0, "the holder has already ended: status 0x%x",
           status);
    end_close(&end);
    close(hold[1]);
    join(holder);
    puts("ok");
    return 0;
}
