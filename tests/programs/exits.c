/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A process may end at any moment: while it opens adapters, makes connections or transfers data, in
 * any of its threads. Each child process ends in one way after a time that its seed determines.
 * None may hang or crash.
 *
 *   exits COUNT [SEED]   starts COUNT children, all derived from one seed, which is printed
 */

#include "dat_test.h"

#include <pthread.h>

enum { SIZE = 16384, DTOS = 4, MAX_DELAY_US = 6000 };

enum exit_kind {
    EXIT,
    EXIT_ELSEWHERE,
    EXIT_AT_ONCE,
    EXIT_QUICKLY,
    RETURN,
    LAST_THREAD,
    KILL,
    CLOSE_AND_EXIT,
    EXIT_KINDS
};

static const char *const NAMES[] = {
    "exit",   "exit in another thread",  "_exit",   "quick_exit",
    "return", "exit of the last thread", "SIGTERM", "dat_ia_close, then exit",
};

static struct end ends[2];
static int introductions[2];

/* The end of the process may make a call fail. Such a failure must not be reported. */
#define DO(call)                      \
    do {                              \
        if ((call) != DAT_SUCCESS)    \
            for (;;)                  \
                pause();              \
    } while (0)

static void *serve(void *nothing)
{
    DAT_EVENT event;
    DAT_COUNT more;
    (void)nothing;
    end_open(&ends[0], SIZE, DTOS);
    serve_one(&ends[0], introductions[1]);
    DO(dat_evd_wait(ends[0].connect, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    return NULL;
}

static void *transfer(void *nothing)
{
    struct introduction peer;
    (void)nothing;
    end_open(&ends[1], SIZE, DTOS);
    peer = connect_to(&ends[1], introductions[0]);
    for (DAT_UINT64 count = 0;; count++) {
        DAT_LMR_TRIPLET segment = local_segment(&ends[1], 0, SIZE);
        DAT_RMR_TRIPLET remote = remote_segment(&peer, 0, SIZE);
        DAT_DTO_COOKIE cookie = {.as_64 = count};
        DAT_EVENT event;
        DAT_COUNT more;
        DO(dat_ep_post_rdma_write(ends[1].ep, 1, &segment, cookie, &remote,
                                  DAT_COMPLETION_DEFAULT_FLAG));
        DO(dat_evd_wait(ends[1].request, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    }
    return NULL;
}

static void *exit_here(void *nothing)
{
    (void)nothing;
    exit(0);
}

static int run_and_exit(enum exit_kind exit_kind, unsigned delay)
{
    struct timespec time = {0, (long)delay * 1000};
    pthread_t threads[2], other;

    EXPECT(pipe(introductions) == 0, "pipe: %s", strerror(errno));
    if (exit_kind == CLOSE_AND_EXIT) {
        /* The process ends after it has closed its only adapter. */
        end_open(&ends[0], SIZE, DTOS);
        end_close(&ends[0]);
    } else {
        EXPECT(pthread_create(&threads[0], NULL, serve, NULL) == 0, "no thread");
        EXPECT(pthread_create(&threads[1], NULL, transfer, NULL) == 0, "no thread");
        nanosleep(&time, NULL);
    }
    switch (exit_kind) {
    case EXIT_ELSEWHERE:
        EXPECT(pthread_create(&other, NULL, exit_here, NULL) == 0, "no thread");
        for (;;)
            pause();
    case EXIT_AT_ONCE:
        _exit(0);
    case EXIT_QUICKLY:
        quick_exit(0);
    case RETURN:
        return 0;
    case LAST_THREAD:
        EXPECT(pthread_create(&other, NULL, exit_here, NULL) == 0, "no thread");
        pthread_exit(NULL);
    case KILL:
        raise(SIGTERM);
        _exit(1);
    default:
        exit(0);
    }
}

int main(int argc, char **argv)
{
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    unsigned first = argc > 2 ? (unsigned)atoi(argv[2]) : 1;

    EXPECT(count > 0, "usage: exits COUNT [SEED]");
    printf("seeds %u to %u\n", first, first + count - 1);
    for (unsigned seed = first; seed < first + count; seed++) {
        enum exit_kind exit_kind = (enum exit_kind)(seed % EXIT_KINDS);
        unsigned delay = seed * 2654435761u % MAX_DELAY_US;
        double started = now();
        int status = 0;
        pid_t child;

        fflush(stdout);
        child = fork();
        EXPECT(child >= 0, "fork: %s", strerror(errno));
        if (child == 0)
            return run_and_exit(exit_kind, delay);
        while (waitpid(child, &status, WNOHANG) == 0) {
            struct timespec pause_time = {0, 200000};
            if (now() - started > WAIT_LIMIT_SECONDS) {
                kill(child, SIGABRT);
                FAIL("seed %u: %s after %u us hangs", seed, NAMES[exit_kind], delay);
            }
            nanosleep(&pause_time, NULL);
        }
        EXPECT(exit_kind == KILL ? WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM
                           : WIFEXITED(status) && WEXITSTATUS(status) == 0,
               "seed %u: %s after %u us: status 0x%x", seed, NAMES[exit_kind], delay, status);
    }
    puts("ok");
    return 0;
}
