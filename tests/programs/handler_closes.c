/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A signal handler closes the objects that its own thread waits on. The usual clean-up of C
 * programs is a handler that calls exit(), and functions registered with atexit() that free all
 * objects.
 *
 *   handler_closes asleep         the thread sleeps in dat_evd_wait or dat_cno_wait, alone or
 *                                 beside another waiting thread: all objects are freed with
 *                                 success, the peer is disconnected, and the process ends
 *   handler_closes moment COUNT   the signal comes at any moment, while data flows, to a thread
 *                                 that waits and to one that polls: the process ends. It does not
 *                                 come earlier, because a call that establishes the connection may
 *                                 be in malloc, which a handler must not interrupt
 *   handler_closes call COUNT     the signal comes while the thread queries an adapter: the process
 *                                 ends
 *   handler_closes returns        the handler closes and returns: the wait ends with DAT_ABORT, and
 *                                 nothing is left
 */

#include "dat_test.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { SIZE = 4096, DTOS = 4 };

enum wait { ON_EVD, ON_CNO, ON_ASYNC, POLLING, BESIDE_ANOTHER, WAIT_KINDS };
enum cleanup { ABRUPT, ONE_BY_ONE, GRACEFUL, CLEANUP_KINDS };

static struct end end;
static DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
static enum cleanup cleanup_kind;
static bool checked; /* the results of the clean-up calls are checked */
static atomic_int cleaned;

#define CLEAN(call)                                                  \
    do {                                                             \
        DAT_RETURN answer = (call);                                  \
        if (checked && answer != DAT_SUCCESS) {                      \
            fprintf(stderr, "%s: %s\n", #call, status_text(answer)); \
            _exit(1);                                                \
        }                                                            \
    } while (0)

static void clean_up(void)
{
    if (cleanup_kind == GRACEFUL) {
        DAT_RETURN status;
        DAT_EVENT event;
        DAT_COUNT more;
        CLEAN(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
        if (checked) {
            status = dat_evd_wait(end.connect, WAIT_LIMIT, 1, &event, &more);
            CLEAN(status);
            if (event.event_number != DAT_CONNECTION_EVENT_DISCONNECTED)
                _exit(1);
        }
    }
    if (cleanup_kind != ABRUPT) {
        CLEAN(dat_ep_free(end.ep));
        CLEAN(dat_lmr_free(end.lmr));
        CLEAN(dat_evd_free(end.recv));
        CLEAN(dat_evd_free(end.request));
        CLEAN(dat_evd_free(end.connect));
        CLEAN(dat_evd_free(end.cr));
        if (cno != DAT_HANDLE_NULL)
            CLEAN(dat_cno_free(cno));
        CLEAN(dat_pz_free(end.pz));
        CLEAN(dat_ia_close(end.ia, DAT_CLOSE_GRACEFUL_FLAG));
    } else {
        CLEAN(dat_ia_close(end.ia, DAT_CLOSE_ABRUPT_FLAG));
    }
    cleaned = 1;
}

static void on_interrupt(int number)
{
    (void)number;
    exit(0);
}

static void on_return(int number)
{
    (void)number;
    clean_up();
}

static void handle(void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    EXPECT(sigaction(SIGINT, &action, NULL) == 0, "sigaction: %s", strerror(errno));
}

static void *wait_beside(void *evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    return NULL;
}

/*
 * Starts a thread that waits and takes no signals: a new thread inherits the set of blocked
 * signals.
 */
static void start_waiting_beside(DAT_EVD_HANDLE evd)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    EXPECT(pthread_create(&thread, NULL, wait_beside, evd) == 0, "no thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static DAT_RETURN wait_forever(enum wait wait)
{
    DAT_EVD_HANDLE triggered;
    DAT_EVENT event;
    DAT_COUNT more;

    switch (wait) {
    case ON_CNO:
        return dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &triggered);
    case ON_ASYNC:
        return dat_evd_wait(end.async, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    default:
        return dat_evd_wait(end.recv, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    }
}

/* Returns the system call that the first thread of a process is in; -1: the thread runs. */
static long system_call(pid_t process)
{
    char path[64], line[512];
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)process);
    file = fopen(path, "r");
    EXPECT(file != NULL && fgets(line, sizeof line, file) != NULL, "%s: %s", path, strerror(errno));
    fclose(file);
    return line[0] >= '0' && line[0] <= '9' ? atol(line) : -1;
}

/*
 * Waits until the process sleeps in a poller, or on a futex for so long that it cannot be a lock
 * that another thread holds briefly.
 */
static void await_sleep(pid_t process)
{
    for (int looks = 0; looks < 1000; sched_yield()) {
        long call = system_call(process);
        if (call == SYS_ppoll || call == SYS_poll)
            return;
        looks = call == SYS_futex ? looks + 1 : 0;
    }
}

/* The code of another process, which connects, does something, and is interrupted. */
static void open_and_connect(int introductions, enum wait wait)
{
    end_open(&end, SIZE, DTOS);
    if (wait == ON_CNO) {
        OK(dat_cno_create(end.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
        OK(dat_evd_modify_cno(end.recv, cno));
    }
    connect_to(&end, introductions);
}

static void expect_end(pid_t child, const char *what)
{
    int status;
    EXPECT(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: the child ended with 0x%x", what,
           status);
}

static const char *const WAIT_NAMES[] = {"EVD", "CNO", "async EVD", "poll", "EVD beside another"};
static const char *const CLEANUP_NAMES[] = {"closed abruptly", "freed one by one",
                                            "disconnected and freed"};

static void test_interrupted_sleep(enum wait wait, enum cleanup cleanup)
{
    int introductions[2], ready[2];
    struct end peer;
    DAT_EVENT event;
    pid_t child;
    char byte = 'x';

    printf("%s, %s\n", WAIT_NAMES[wait], CLEANUP_NAMES[cleanup]);
    fflush(stdout);
    EXPECT(pipe(introductions) == 0 && pipe(ready) == 0, "pipe: %s", strerror(errno));
    child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        checked = true;
        cleanup_kind = cleanup;
        open_and_connect(introductions[0], wait);
        if (wait == BESIDE_ANOTHER)
            start_waiting_beside(end.cr);
        EXPECT(atexit(clean_up) == 0, "atexit fails");
        handle(on_interrupt);
        EXPECT(write(ready[1], &byte, 1) == 1, "the parent has ended");
        fprintf(stderr, "the wait ends with %s\n", status_text(wait_forever(wait)));
        _exit(1);
    }
    end_open(&peer, SIZE, DTOS);
    serve_one(&peer, introductions[1]);
    EXPECT(read(ready[0], &byte, 1) == 1, "the child has ended");
    await_sleep(child);
    EXPECT(kill(child, SIGINT) == 0, "kill: %s", strerror(errno));
    expect_end(child, WAIT_NAMES[wait]);
    event = wait_event(peer.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
               (cleanup != GRACEFUL && event.event_number == DAT_CONNECTION_EVENT_BROKEN),
           "the peer received event 0x%x", event.event_number);
    end_close(&peer);
    for (int i = 0; i < 2; i++) {
        close(introductions[i]);
        close(ready[i]);
    }
}

/* Blocks SIGINT in this thread, or lets it come. A blocked signal stays pending. */
static void mask_interrupt(int how)
{
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    EXPECT(pthread_sigmask(how, &interrupt, NULL) == 0, "pthread_sigmask fails");
}

/*
 * Run by the child, in which SIGINT is blocked: writes to the peer's memory without a pause, so
 * that the child is busy. SIGINT may come as soon as the connection is established.
 */
static void transfer(enum wait wait, int introductions)
{
    struct introduction to = connect_to(&end, introductions);
    mask_interrupt(SIG_UNBLOCK);
    for (DAT_UINT64 count = 0;; count++) {
        DAT_LMR_TRIPLET segment = local_segment(&end, 0, SIZE);
        DAT_RMR_TRIPLET remote = remote_segment(&to, 0, SIZE);
        DAT_DTO_COOKIE cookie = {.as_64 = count};
        DAT_EVD_HANDLE triggered;
        DAT_EVENT event;
        DAT_COUNT more;
        dat_ep_post_rdma_write(end.ep, 1, &segment, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG);
        if (wait == ON_EVD)
            dat_evd_wait(end.request, DAT_TIMEOUT_INFINITE, 1, &event, &more);
        if (wait == ON_CNO)
            dat_cno_wait(cno, SECOND / 100, &triggered);
        if (wait != ON_EVD)
            while (DAT_GET_TYPE(dat_evd_dequeue(end.request, &event)) == DAT_QUEUE_EMPTY)
                ;
    }
}

static void test_interrupted_transfer(unsigned seed)
{
    static const enum wait waits[] = {ON_EVD, ON_CNO, POLLING};
    enum wait wait = waits[seed % 3];
    struct timespec delay = {0, (long)(seed * 2654435761u % 3000) * 1000};
    int introductions[2];
    struct end peer;
    DAT_EVENT event;
    pid_t child;

    EXPECT(pipe(introductions) == 0, "pipe: %s", strerror(errno));
    child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        mask_interrupt(SIG_BLOCK);
        cleanup_kind = (enum cleanup)(seed / 3 % CLEANUP_KINDS);
        end_open(&end, SIZE, DTOS);
        if (wait == ON_CNO) {
            OK(dat_cno_create(end.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
            OK(dat_evd_modify_cno(end.request, cno));
        }
        EXPECT(atexit(clean_up) == 0, "atexit fails");
        handle(on_interrupt);
        transfer(wait, introductions[0]);
    }
    end_open(&peer, SIZE, DTOS);
    serve_one(&peer, introductions[1]);
    nanosleep(&delay, NULL);
    EXPECT(kill(child, SIGINT) == 0, "kill: %s", strerror(errno));
    expect_end(child, WAIT_NAMES[wait]);
    event = wait_event(peer.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
               event.event_number == DAT_CONNECTION_EVENT_BROKEN,
           "the peer received event 0x%x", event.event_number);
    end_close(&peer);
    close(introductions[0]);
    close(introductions[1]);
}

/* Run by the child: calls the functions that look up the handle of an adapter, without a pause. */
static void call_without_pause(unsigned seed)
{
    for (DAT_HANDLE_TYPE type;;) {
        if (seed % 2 == 0)
            dat_get_handle_type(end.ia, &type);
        else
            dat_ia_query(end.ia, NULL, 0, NULL, 0, NULL);
    }
}

static void test_interrupted_call(unsigned seed)
{
    static const char *const calls[] = {"get_handle_type", "ia_query"};
    struct timespec delay = {0, (long)(seed * 2654435761u % 3000) * 1000};
    int ready[2];
    pid_t child;
    char byte = 'x';

    EXPECT(pipe(ready) == 0, "pipe: %s", strerror(errno));
    child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        cleanup_kind = ABRUPT;
        end_open(&end, SIZE, DTOS);
        EXPECT(atexit(clean_up) == 0, "atexit fails");
        handle(on_interrupt);
        EXPECT(write(ready[1], &byte, 1) == 1, "the parent has ended");
        call_without_pause(seed);
    }
    EXPECT(read(ready[0], &byte, 1) == 1, "the child has ended");
    nanosleep(&delay, NULL);
    EXPECT(kill(child, SIGINT) == 0, "kill: %s", strerror(errno));
    expect_end(child, calls[seed % 2]);
    close(ready[0]);
    close(ready[1]);
}

static int count_entries(const char *path)
{
    struct dirent *entry;
    int count = 0;
    DIR *dir = opendir(path);
    EXPECT(dir != NULL, "%s: %s", path, strerror(errno));
    while ((entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void *interrupt(void *waiter)
{
    pthread_t *thread = waiter;
    await_sleep(getpid());
    EXPECT(pthread_kill(*thread, SIGINT) == 0, "no such thread");
    return NULL;
}

static void open_and_close(void)
{
    end_open(&end, SIZE, DTOS);
    end_close(&end);
}

static void test_handler_that_returns(enum wait wait, enum cleanup cleanup)
{
    pthread_t self = pthread_self(), other;
    DAT_RETURN status;
    double limit;
    int fds;

    printf("%s, %s\n", WAIT_NAMES[wait], CLEANUP_NAMES[cleanup]);
    open_and_close();
    fds = count_entries("/proc/self/fd");
    checked = true;
    cleanup_kind = cleanup;
    cleaned = 0;
    cno = DAT_HANDLE_NULL;
    end_open(&end, SIZE, DTOS);
    if (wait == ON_CNO) {
        OK(dat_cno_create(end.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
        OK(dat_evd_modify_cno(end.recv, cno));
    }
    handle(on_return);
    EXPECT(pthread_create(&other, NULL, interrupt, &self) == 0, "no thread");
    status = wait_forever(wait);
    EXPECT(cleaned && DAT_GET_TYPE(status) == DAT_ABORT, "the wait ends with %s",
           status_text(status));
    pthread_join(other, NULL);
    free(end.buffer);
    open_and_close();
    /*
     * Another thread does the rest of the clean-up, and the kernel lists a thread for a moment
     * after it was joined.
     */
    for (limit = now() + WAIT_LIMIT_SECONDS;
         count_entries("/proc/self/fd") != fds || count_entries("/proc/self/task") != 1;
         sched_yield())
        EXPECT(now() < limit,
               "after %d s there are %d descriptors, not %d, and %d threads, not one",
               WAIT_LIMIT_SECONDS, count_entries("/proc/self/fd"), fds,
               count_entries("/proc/self/task"));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "asleep") == 0) {
        for (int wait = 0; wait < WAIT_KINDS; wait++)
            for (int cleanup = 0; cleanup < CLEANUP_KINDS && wait != POLLING; cleanup++)
                test_interrupted_sleep((enum wait)wait, (enum cleanup)cleanup);
    } else if (strcmp(how, "moment") == 0 && argc == 3) {
        for (unsigned seed = 0; seed < (unsigned)atoi(argv[2]); seed++)
            test_interrupted_transfer(seed);
    } else if (strcmp(how, "call") == 0 && argc == 3) {
        for (unsigned seed = 0; seed < (unsigned)atoi(argv[2]); seed++)
            test_interrupted_call(seed);
    } else if (strcmp(how, "returns") == 0) {
        for (int wait = 0; wait < POLLING; wait++)
            for (int cleanup = 0; cleanup < GRACEFUL; cleanup++)
                test_handler_that_returns((enum wait)wait, (enum cleanup)cleanup);
    } else {
        FAIL("usage: handler_closes asleep | moment COUNT | call COUNT | returns");
    }
    puts("ok");
    return 0;
}
