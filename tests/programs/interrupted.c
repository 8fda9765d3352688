/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Signals that arrive during DAT calls.
 *
 *   interrupted waits     a handler runs while a thread waits: the call answers
 *                         DAT_INTERRUPTED_CALL, or goes on if the handler restarts calls; in either
 *                         case the next event arrives exactly once
 *   interrupted stopped   the process is stopped and continued, is traced, and starts other
 *                         programs while a thread waits: no handler has run, so the wait goes on
 *   interrupted storm     thousands of signals hit every thread of both processes while they
 *                         transfer data
 *   interrupted open      an adapter is opened while a timer fires every 20 microseconds; no
 *                         handler runs between the system calls that open it, so the timer cannot
 *                         keep them from ending
 */

#include "dat_test.h"

#include <dirent.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>

/* ---- waits ----------------------------------------------------------------------------------- */

enum { EVENTS = 200 };

struct waiter {
    DAT_EVD_HANDLE evd;
    DAT_CNO_HANDLE cno; /* if set, the thread waits on the CNO and not on the EVD */
    atomic_int interrupted, taken;
};

static atomic_int handled;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void handle(int number, int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = flags;
    EXPECT(sigaction(number, &action, NULL) == 0, "sigaction: %s", strerror(errno));
}

/* Takes EVENTS software events, which are numbered. */
static void *wait_for_all(void *argument)
{
    struct waiter *self = argument;
    while (self->taken < EVENTS) {
        DAT_EVD_HANDLE triggered = DAT_HANDLE_NULL;
        DAT_RETURN status;
        DAT_EVENT event;
        DAT_COUNT more;

        if (self->cno != DAT_HANDLE_NULL) {
            status = dat_cno_wait(self->cno, DAT_TIMEOUT_INFINITE, &triggered);
            EXPECT(status != DAT_SUCCESS || triggered == self->evd, "another EVD");
        } else {
            status = dat_evd_wait(self->evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
        }
        if (DAT_GET_TYPE(status) == DAT_INTERRUPTED_CALL) {
            atomic_fetch_add(&self->interrupted, 1);
            continue;
        }
        OK(status);
        if (self->cno != DAT_HANDLE_NULL) {
            status = dat_evd_dequeue(self->evd, &event);
            /* A trigger may be for an event that was already taken. */
            if (DAT_GET_TYPE(status) == DAT_QUEUE_EMPTY)
                continue;
            OK(status);
        }
        EXPECT(event.event_data.software_event_data.pointer ==
                   (DAT_PVOID)(uintptr_t)(self->taken + 1),
               "event %p after %d", event.event_data.software_event_data.pointer, self->taken);
        atomic_fetch_add(&self->taken, 1);
    }
    return NULL;
}

static void post_se(DAT_EVD_HANDLE evd, int number)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = (DAT_PVOID)(uintptr_t)number;
    OK(dat_evd_post_se(evd, &event));
}

static void interrupt_waits(DAT_IA_HANDLE ia, bool on_cno, bool restarts)
{
    struct waiter waiter = {.cno = DAT_HANDLE_NULL};
    pthread_t thread;

    handle(SIGUSR1, restarts ? SA_RESTART : 0);
    if (on_cno)
        OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &waiter.cno));
    OK(dat_evd_create(ia, 8, waiter.cno, DAT_EVD_SOFTWARE_FLAG, &waiter.evd));
    EXPECT(pthread_create(&thread, NULL, wait_for_all, &waiter) == 0, "no thread");
    for (int number = 1; number <= EVENTS; number++) {
        int before = waiter.interrupted, signals = handled;
        /* A signal that comes before the thread sleeps interrupts nothing. */
        do {
            EXPECT(pthread_kill(thread, SIGUSR1) == 0, "no such thread");
            while (handled == signals)
                sched_yield();
            signals = handled;
            for (int i = 0; i < 20 && waiter.interrupted == before; i++)
                sched_yield();
        } while (waiter.interrupted == before && !restarts);
        post_se(waiter.evd, number);
        while (waiter.taken < number)
            sched_yield();
    }
    pthread_join(thread, NULL);
    printf("%s, %s: %d waits interrupted\n", on_cno ? "CNO" : "EVD",
           restarts ? "SA_RESTART" : "no flags", waiter.interrupted);
    OK(dat_evd_free(waiter.evd));
    if (on_cno)
        OK(dat_cno_free(waiter.cno));
}

/*
 * Waits until the end. This thread leads: it waits in the poller, and the other threads follow it.
 */
static void *wait_as_leader(void *evd)
{
    DAT_RETURN status;
    DAT_EVENT event;
    DAT_COUNT more;
    status = dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
    OK(status);
    return NULL;
}

static void waits(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, aside;
    DAT_IA_HANDLE ia;
    pthread_t leader;

    OK(dat_ia_open(ia_under_test(), 8, &async, &ia));
    for (int which = 0; which < 4; which++)
        interrupt_waits(ia, which & 1, which & 2);
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &aside));
    EXPECT(pthread_create(&leader, NULL, wait_as_leader, aside) == 0, "no thread");
    for (int which = 0; which < 4; which++)
        interrupt_waits(ia, which & 1, which & 2);
    post_se(aside, 1);
    pthread_join(leader, NULL);
    OK(dat_evd_free(aside));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

/* ---- stopped --------------------------------------------------------------------------------- */

enum { STOPS = 50, PING = 64, DTOS = 8 };

struct sleeper {
    DAT_EVD_HANDLE evd;
    DAT_CNO_HANDLE cno; /* if set, the thread waits on the CNO and not on the EVD */
    DAT_RETURN status;
    DAT_EVENT event;
};

/* Waits once. */
static void *wait_once(void *argument)
{
    struct sleeper *self = argument;
    DAT_EVD_HANDLE triggered = DAT_HANDLE_NULL;
    DAT_COUNT more;

    if (self->cno != DAT_HANDLE_NULL)
        self->status = dat_cno_wait(self->cno, DAT_TIMEOUT_INFINITE, &triggered);
    else
        self->status = dat_evd_wait(self->evd, DAT_TIMEOUT_INFINITE, 1, &self->event, &more);
    return NULL;
}

extern char **environ;

/* Starts a process and waits for it: a shell, or this program if there is no shell. */
static void run_child_process(void)
{
    char *arguments[] = {"interrupted", "nothing", NULL};
    pid_t child;
    int status;

    if (system(NULL)) {
        EXPECT(system("true") == 0, "the shell fails");
        return;
    }
    EXPECT(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0,
           "posix_spawn failed");
    EXPECT(waitpid(child, &status, 0) == child && status == 0,
           "a process that does nothing failed");
}

/* Connects two endpoints of this process. */
static void connect_ends(struct end *active, struct end *passive)
{
    DAT_CONN_QUAL port = free_port();
    DAT_PSP_HANDLE psp;
    OK(dat_psp_create(passive->ia, port, passive->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    start_connect(active->ep, port);
    accept_next(passive->cr, passive->ep, passive->connect);
    wait_established(active->connect);
    OK(dat_psp_free(psp));
}

/*
 * What the threads wait for. A provider may wait for events of the device in another way than for
 * other events.
 */
enum { ON_EVD, ON_CNO, ON_RECEIVE, ON_CONNECTION, SLEEPERS };

/* Lets threads wait while the parent, at the other end of `parent`, disturbs the process. */
static void wait_while_disturbed(int parent)
{
    struct sleeper sleepers[SLEEPERS];
    pthread_t threads[SLEEPERS];
    struct end near, far;
    DAT_LMR_TRIPLET segment;
    DAT_DTO_COOKIE cookie = {.as_64 = 7};
    char byte = 'x';

    memset(sleepers, 0, sizeof sleepers);
    end_open(&near, 4096, DTOS);
    end_open(&far, 4096, DTOS);
    connect_ends(&far, &near);
    post_receives(&near, 1, PING);
    sleepers[ON_RECEIVE].evd = near.recv;
    sleepers[ON_CONNECTION].evd = near.connect;
    OK(dat_cno_create(near.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &sleepers[ON_CNO].cno));
    for (int i = ON_EVD; i <= ON_CNO; i++)
        OK(dat_evd_create(near.ia, 8, sleepers[i].cno, DAT_EVD_SOFTWARE_FLAG, &sleepers[i].evd));
    for (int i = 0; i < SLEEPERS; i++)
        EXPECT(pthread_create(&threads[i], NULL, wait_once, &sleepers[i]) == 0, "no thread");
    EXPECT(write(parent, &byte, 1) == 1, "the parent has ended");
    EXPECT(read(parent, &byte, 1) == 1, "the parent has ended");
    for (int i = 0; i < STOPS; i++)
        run_child_process();

    post_se(sleepers[ON_EVD].evd, 1);
    post_se(sleepers[ON_CNO].evd, 1);
    segment = local_segment(&far, 0, PING);
    OK(dat_ep_post_send(far.ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    pthread_join(threads[ON_RECEIVE], NULL);
    OK(dat_ep_disconnect(far.ep, DAT_CLOSE_GRACEFUL_FLAG));
    for (int i = 0; i < SLEEPERS; i++) {
        if (i != ON_RECEIVE)
            pthread_join(threads[i], NULL);
        OK(sleepers[i].status);
    }
    EXPECT(sleepers[ON_RECEIVE].event.event_number == DAT_DTO_COMPLETION_EVENT,
           "event 0x%x in place of a receive", sleepers[ON_RECEIVE].event.event_number);
    EXPECT(sleepers[ON_CONNECTION].event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED,
           "event 0x%x in place of a disconnection", sleepers[ON_CONNECTION].event.event_number);
    wait_event(far.connect);
    for (int i = ON_EVD; i <= ON_CNO; i++)
        OK(dat_evd_free(sleepers[i].evd));
    OK(dat_cno_free(sleepers[ON_CNO].cno));
    end_close(&far);
    end_close(&near);
}

static void expect_change(pid_t child, int options, const char *what)
{
    int status;
    EXPECT(waitpid(child, &status, options) == child, "waitpid: %s", strerror(errno));
    EXPECT(!WIFEXITED(status) && !WIFSIGNALED(status), "the child ended (0x%x) when it was %s",
           status, what);
}

/* Attaches to each thread and detaches, as a debugger does. A host may forbid it. */
static void trace_threads(pid_t process)
{
    char path[64];
    struct dirent *entry;
    DIR *threads;

    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    threads = opendir(path);
    EXPECT(threads != NULL, "%s: %s", path, strerror(errno));
    while ((entry = readdir(threads)) != NULL) {
        pid_t thread = (pid_t)atoi(entry->d_name);
        if (thread > 0 && ptrace(PTRACE_ATTACH, thread, NULL, NULL) == 0) {
            expect_change(thread, __WALL, "traced");
            EXPECT(ptrace(PTRACE_DETACH, thread, NULL, NULL) == 0, "detach: %s", strerror(errno));
        }
    }
    closedir(threads);
}

static void stopped(void)
{
    int ends[2], status;
    pid_t child;
    char byte;

    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair: %s", strerror(errno));
    child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        close(ends[0]);
        wait_while_disturbed(ends[1]);
        exit(0);
    }
    close(ends[1]);
    EXPECT(read(ends[0], &byte, 1) == 1, "the child has ended");
    for (int i = 0; i < STOPS; i++) {
        EXPECT(kill(child, SIGSTOP) == 0, "kill: %s", strerror(errno));
        expect_change(child, WUNTRACED, "stopped");
        EXPECT(kill(child, SIGCONT) == 0, "kill: %s", strerror(errno));
        expect_change(child, WCONTINUED, "continued");
    }
    for (int i = 0; i < STOPS; i++)
        trace_threads(child);
    EXPECT(write(ends[0], &byte, 1) == 1, "the child has ended");
    EXPECT(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with 0x%x", status);
    close(ends[0]);
}

/* ---- storm ----------------------------------------------------------------------------------- */

enum { ROUNDS = 1500, BULK = 65536 };

static void start_storm(void)
{
    struct itimerval often = {.it_interval.tv_usec = 100, .it_value.tv_usec = 100};
    handle(SIGPROF, 0);
    handle(SIGALRM, 0);
    EXPECT(setitimer(ITIMER_PROF, &often, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0,
           "setitimer failed");
}

static void end_storm(void)
{
    struct itimerval never;
    memset(&never, 0, sizeof never);
    EXPECT(setitimer(ITIMER_PROF, &never, NULL) == 0 && setitimer(ITIMER_REAL, &never, NULL) == 0,
           "setitimer failed");
}

static DAT_EVENT next_event(DAT_EVD_HANDLE evd)
{
    DAT_RETURN status;
    DAT_EVENT event;
    DAT_COUNT more;
    do
        status = dat_evd_wait(evd, WAIT_LIMIT, 1, &event, &more);
    while (DAT_GET_TYPE(status) == DAT_INTERRUPTED_CALL);
    OK(status);
    return event;
}

static void expect_dto(DAT_EVD_HANDLE evd, DAT_UINT64 cookie)
{
    DAT_EVENT event = next_event(evd);
    DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT, "event 0x%x", event.event_number);
    EXPECT(dto->status == DAT_DTO_SUCCESS && dto->user_cookie.as_64 == cookie,
           "status %d, cookie %lu, not %lu", dto->status, (unsigned long)dto->user_cookie.as_64,
           (unsigned long)cookie);
}

static void fill(char *bytes, size_t length, int seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)(i * 31 + (size_t)seed);
}

/*
 * The buffer holds what is sent, what is received (in two places, by turns), and what the peer
 * writes.
 */
static char *receive_place(struct end *end, int round)
{
    return end->buffer + PING + (round & 1) * PING;
}

static void post_receive(struct end *end, int round)
{
    DAT_LMR_TRIPLET segment =
        local_segment(end, (size_t)(receive_place(end, round) - end->buffer), PING);
    DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)round};
    OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

/*
 * The initiator writes and then sends a message. The target checks the written octets and answers.
 */
static void exchange(struct end *end, const struct introduction *peer)
{
    static char expected[BULK];
    for (int round = 0; round < ROUNDS; round++) {
        DAT_LMR_TRIPLET segment;
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)round};

        if (peer != NULL) {
            DAT_RMR_TRIPLET remote = remote_segment(peer, 4096, BULK);
            fill(end->buffer + 4096, BULK, round);
            segment = local_segment(end, 4096, BULK);
            OK(dat_ep_post_rdma_write(end->ep, 1, &segment, cookie, &remote,
                                      DAT_COMPLETION_SUPPRESS_FLAG));
        } else {
            expect_dto(end->recv, (DAT_UINT64)round);
            fill(expected, BULK, round);
            EXPECT(memcmp(end->buffer + 4096, expected, BULK) == 0,
                   "round %d: the written octets differ", round);
            fill(expected, PING, round);
            EXPECT(memcmp(receive_place(end, round), expected, PING) == 0,
                   "round %d: the message differs", round);
            post_receive(end, round + 2);
        }
        fill(end->buffer, PING, round);
        segment = local_segment(end, 0, PING);
        OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        if (peer != NULL) {
            expect_dto(end->recv, (DAT_UINT64)round);
            fill(expected, PING, round);
            EXPECT(memcmp(receive_place(end, round), expected, PING) == 0,
                   "round %d: the answer differs", round);
            post_receive(end, round + 2);
        }
        expect_dto(end->request, (DAT_UINT64)round);
    }
}

static void storm(void)
{
    struct introduction peer;
    int pipe_ends[2];
    struct end end;
    pid_t target;

    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    target = fork();
    EXPECT(target >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096 + BULK, DTOS);
    post_receive(&end, 0);
    post_receive(&end, 1);
    if (target == 0)
        serve_one(&end, pipe_ends[1]);
    else
        peer = connect_to(&end, pipe_ends[0]);
    start_storm();
    exchange(&end, target == 0 ? NULL : &peer);
    if (target != 0)
        OK(dat_ep_disconnect(end.ep, DAT_CLOSE_GRACEFUL_FLAG));
    EXPECT(next_event(end.connect).event_number == DAT_CONNECTION_EVENT_DISCONNECTED,
           "no disconnection");
    end_storm();
    EXPECT(handled > 100, "only %d signals", handled);
    end_close(&end);
    if (target == 0)
        exit(0);
    join(target);
    printf("%d signals in this process\n", handled);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int binds, interrupted_binds;
static bool opening;

/*
 * Replaces the C library's bind, so that a signal arrives exactly while the provider binds a
 * socket.
 */
int bind(int socket, const struct sockaddr *address, socklen_t length)
{
    int before = handled;
    if (opening) {
        EXPECT(raise(SIGUSR1) == 0, "raise: %s", strerror(errno));
        binds++;
        if (handled != before)
            interrupted_binds++;
    }
    return (int)syscall(SYS_bind, socket, address, length);
}

static void open_during_storm(void)
{
    struct itimerval often = {.it_interval.tv_usec = 20, .it_value.tv_usec = 20}, never;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, second = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia, neighbour;
    int before;

    handle(SIGUSR1, 0);
    handle(SIGALRM, 0);
    opening = true;
    OK(dat_ia_open(ia_under_test(), 8, &async, &ia));
    before = handled;
    opening = false;
    EXPECT(interrupted_binds == 0, "handlers ran in %d of %d calls of bind", interrupted_binds,
           binds);
    EXPECT(binds > 0 || strstr(ia_under_test(), "softroce") == NULL,
           "the adapter has bound no socket");
    EXPECT(before > 0 || binds == 0, "a signal that arrived meanwhile was lost");

    /*
     * The second adapter gets its sockets from the first one. The timer's signals interrupt every
     * call that a signal can interrupt.
     */
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer failed");
    OK(dat_ia_open(ia_under_test(), 8, &second, &neighbour));
    memset(&never, 0, sizeof never);
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0, "no timer");
    OK(dat_ia_close(neighbour, DAT_CLOSE_GRACEFUL_FLAG));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    printf("%d calls of bind\n", binds);
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    if (strcmp(how, "waits") == 0)
        waits();
    else if (strcmp(how, "stopped") == 0)
        stopped();
    else if (strcmp(how, "storm") == 0)
        storm();
    else if (strcmp(how, "open") == 0)
        open_during_storm();
    else if (strcmp(how, "nothing") == 0)
        return 0;
    else
        FAIL("usage: interrupted waits|stopped|storm|open");
    puts("ok");
    return 0;
}
