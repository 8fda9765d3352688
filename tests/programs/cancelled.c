/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that end in DAT calls.
 *
 *   cancelled waits    threads that wait on an EVD or a CNO are cancelled at all moments, or end in
 *                      a signal handler: they end, take no event, and others wait in their place
 *   cancelled calls    a thread whose cancellation is pending makes all calls of a connection that
 *                      do not wait: each of them returns normally
 *   cancelled cycles   threads are cancelled while they connect, exchange messages and disconnect:
 *                      what they leave behind can be closed
 *   cancelled agent    a proxy agent calls pthread_exit: only that call of the agent ends
 *   cancelled late     pthread_cancel finds a thread in a wait, and its signal arrives after the
 *                      event of the wait: the thread does not end while its cancellation is
 *                      disabled
 */

#define _GNU_SOURCE
#include "dat_test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* ---- waits ----------------------------------------------------------------------------------- */

enum { PING = 64, DTOS = 8, RANDOM_ROUNDS = 200, STREAM_ROUNDS = 30 };

/* When a thread is cancelled. */
enum moment { ASLEEP, BEFORE, ANY_MOMENT, STREAM, IN_HANDLER };

static const char *const moments[] = {"asleep", "before", "at any moment", "in a stream of events",
                                      "in a handler"};

struct waiter {
    DAT_EVD_HANDLE evd;
    DAT_CNO_HANDLE cno; /* if set, the thread waits on the CNO and not on the EVD */
    enum moment moment;
    atomic_int thread; /* its number in the kernel */
    atomic_int taken;  /* how many events it has taken */
    atomic_int cleaned;
};

static DAT_EVD_HANDLE idle; /* gets no events */

/* A thread that ends may still make calls. */
static void note_cleanup(void *argument)
{
    struct waiter *self = argument;
    DAT_RETURN status;
    DAT_EVENT event;
    DAT_COUNT more;
    status = dat_evd_wait(idle, 1, 1, &event, &more);
    EXPECT(DAT_GET_TYPE(status) == DAT_TIMEOUT_EXPIRED, "a wait of a thread that ends: %s",
           status_text(status));
    atomic_fetch_add(&self->cleaned, 1);
}

/* Waits for one event. If it is a software event, returns its number. */
static int take_one(const struct waiter *self)
{
    DAT_EVD_HANDLE triggered = DAT_HANDLE_NULL;
    DAT_RETURN status;
    DAT_EVENT event;
    DAT_COUNT more;

    if (self->cno == DAT_HANDLE_NULL) {
        OK(dat_evd_wait(self->evd, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    } else {
        do {
            OK(dat_cno_wait(self->cno, DAT_TIMEOUT_INFINITE, &triggered));
            EXPECT(triggered == self->evd, "another EVD");
            status = dat_evd_dequeue(self->evd, &event);
            /* A trigger may be for an event that was already taken. */
        } while (DAT_GET_TYPE(status) == DAT_QUEUE_EMPTY);
        OK(status);
    }
    return event.event_number == DAT_SOFTWARE_EVENT
               ? (int)(uintptr_t)event.event_data.software_event_data.pointer
               : 0;
}

static void *wait_until_cancelled(void *argument)
{
    struct waiter *self = argument;

    pthread_cleanup_push(note_cleanup, self);
    if (self->moment == BEFORE)
        pthread_cancel(pthread_self());
    atomic_store(&self->thread, (int)syscall(SYS_gettid));
    for (;;) {
        int number = take_one(self);
        EXPECT(number == self->taken + 1, "event %d after %d", number, self->taken);
        atomic_store(&self->taken, number);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* Returns when a thread sleeps in one of the two system calls in which a wait sleeps. */
static void await_sleep(const struct waiter *waiter)
{
    char path[64], text[64];
    for (int seen = 0; seen < 10;) {
        long number = -1;
        FILE *file;
        sched_yield();
        if (waiter->thread == 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter->thread);
        file = fopen(path, "r");
        EXPECT(file != NULL, "%s: %s", path, strerror(errno));
        if (fgets(text, sizeof text, file) == NULL || sscanf(text, "%ld", &number) != 1)
            number = -1;
        fclose(file);
        seen = number == SYS_ppoll || number == SYS_futex ? seen + 1 : 0;
    }
}

/* Posts an event. Returns false if the queue is full. */
static bool post_se(DAT_EVD_HANDLE evd, int number)
{
    DAT_RETURN status;
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = (DAT_PVOID)(uintptr_t)number;
    status = dat_evd_post_se(evd, &event);
    if (DAT_GET_TYPE(status) == DAT_QUEUE_FULL)
        return false;
    OK(status);
    return true;
}

static void on_signal(int number)
{
    (void)number;
    pthread_exit((void *)(uintptr_t)7);
}

static void expect_cancelled(pthread_t thread)
{
    void *result;
    EXPECT(pthread_join(thread, &result) == 0, "no such thread");
    EXPECT(result == PTHREAD_CANCELED, "the thread has returned %p", result);
}

/*
 * Lets a thread end while it waits. `next` is the number of the next event. Returns the number
 * after that of the last event.
 */
static int end_one(DAT_EVD_HANDLE evd, DAT_CNO_HANDLE cno, enum moment moment, int next)
{
    struct waiter waiter = {.evd = evd, .cno = cno, .moment = moment, .taken = next - 1};
    int first = next;
    pthread_t thread;
    void *result;

    EXPECT(pthread_create(&thread, NULL, wait_until_cancelled, &waiter) == 0, "no thread");
    switch (moment) {
    case ASLEEP:
    case IN_HANDLER:
        await_sleep(&waiter);
        break;
    case STREAM:
        while (waiter.taken < first + 20) {
            if (post_se(evd, next))
                next++;
        }
        break;
    default:
        break;
    }
    if (moment == IN_HANDLER) {
        EXPECT(pthread_kill(thread, SIGUSR1) == 0, "no such thread");
        EXPECT(pthread_join(thread, &result) == 0 && result == (void *)(uintptr_t)7,
               "the thread has returned %p", result);
    } else {
        if (moment != BEFORE)
            pthread_cancel(thread);
        for (int i = 0; moment == STREAM && i < 4; i++) {
            if (post_se(evd, next))
                next++;
        }
        expect_cancelled(thread);
    }
    EXPECT(waiter.cleaned == 1, "the thread's cleanup handler ran %d times", waiter.cleaned);

    /* Another waiter, this thread, gets exactly the events that are left, and one more. */
    for (int number = waiter.taken + 1; number <= next; number++) {
        int got;
        if (number == next)
            EXPECT(post_se(evd, next), "an empty queue is full");
        got = take_one(&waiter);
        EXPECT(got == number, "event %d after %d", got, number - 1);
    }
    return next + 1;
}

static void end_waits(DAT_IA_HANDLE ia, bool on_cno, enum moment last)
{
    DAT_CNO_HANDLE cno = DAT_HANDLE_NULL;
    DAT_EVD_HANDLE evd;
    int next = 1;

    if (on_cno)
        OK(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_evd_create(ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    for (enum moment moment = ASLEEP; moment <= last; moment++) {
        int rounds = moment == ANY_MOMENT ? RANDOM_ROUNDS : STREAM_ROUNDS;
        for (int i = 0; i < rounds; i++)
            next = end_one(evd, cno, moment, next);
        printf("%s, %s: ended %d threads\n", on_cno ? "CNO" : "EVD", moments[moment], rounds);
    }
    OK(dat_evd_free(evd));
    if (on_cno)
        OK(dat_cno_free(cno));
}

static void *wait_without_cancellation(void *argument)
{
    struct waiter *self = argument;
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    atomic_store(&self->thread, (int)syscall(SYS_gettid));
    take_one(self);
    atomic_fetch_add(&self->taken, 1);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    EXPECT(state == PTHREAD_CANCEL_DISABLE, "the wait has changed the cancellation's state");
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &state);
    EXPECT(state == PTHREAD_CANCEL_DEFERRED, "the wait has changed the cancellation's type");
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    pthread_testcancel();
    return NULL;
}

/* A thread that has disabled its cancellation waits for its event. */
static void disable(DAT_IA_HANDLE ia)
{
    struct waiter waiter = {.cno = DAT_HANDLE_NULL};
    pthread_t thread;

    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &waiter.evd));
    EXPECT(pthread_create(&thread, NULL, wait_without_cancellation, &waiter) == 0, "no thread");
    await_sleep(&waiter);
    pthread_cancel(thread);
    await_sleep(&waiter);
    EXPECT(waiter.taken == 0, "the wait has ended");
    post_se(waiter.evd, 1);
    expect_cancelled(thread);
    EXPECT(waiter.taken == 1, "the event was not taken");
    OK(dat_evd_free(waiter.evd));
}

/* ---- connections ----------------------------------------------------------------------------- */

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

static void send_one(struct end *end, DAT_UINT64 number)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, PING);
    DAT_DTO_COOKIE cookie = {.as_64 = number};
    OK(dat_ep_post_send(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void *receive_until_cancelled(void *argument)
{
    struct waiter *self = argument;
    atomic_store(&self->thread, (int)syscall(SYS_gettid));
    for (;;)
        take_one(self);
    return NULL;
}

/* A thread that waits for completions sleeps in another place than one that waits for others. */
static void end_waits_for_receives(void)
{
    struct end near, far;

    end_open(&near, 4096, DTOS);
    end_open(&far, 4096, DTOS);
    connect_ends(&far, &near);
    for (int round = 0; round < STREAM_ROUNDS; round++) {
        struct waiter waiter = {.evd = near.recv, .cno = DAT_HANDLE_NULL};
        pthread_t thread;
        post_receives(&near, 1, PING);
        EXPECT(pthread_create(&thread, NULL, receive_until_cancelled, &waiter) == 0, "no thread");
        if (round % 2 == 0)
            await_sleep(&waiter);
        pthread_cancel(thread);
        expect_cancelled(thread);
        send_one(&far, 1);
        wait_event(near.recv);
        wait_event(far.request);
    }
    OK(dat_ep_disconnect(far.ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_event(far.connect);
    wait_event(near.connect);
    end_close(&far);
    end_close(&near);
}

static void waits(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    struct waiter leader = {.cno = DAT_HANDLE_NULL, .moment = ASLEEP};
    struct sigaction action;
    DAT_IA_HANDLE ia;
    pthread_t thread;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction: %s", strerror(errno));
    OK(dat_ia_open(ia_under_test(), 8, &async, &ia));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &idle));
    end_waits(ia, false, STREAM);
    end_waits(ia, true, STREAM);
    disable(ia);
    /*
     * While another thread waits in the poller, the waiting threads sleep elsewhere, and nothing
     * but an event wakes them. POSIX forbids a handler to end a thread that does not sleep.
     */
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &leader.evd));
    EXPECT(pthread_create(&thread, NULL, wait_until_cancelled, &leader) == 0, "no thread");
    await_sleep(&leader);
    end_waits(ia, false, IN_HANDLER);
    end_waits(ia, true, IN_HANDLER);
    pthread_cancel(thread);
    expect_cancelled(thread);
    OK(dat_evd_free(leader.evd));
    OK(dat_evd_free(idle));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    end_waits_for_receives();
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct calls {
    DAT_CONN_QUAL port;
    atomic_int done;
};

/* Takes the next event without a wait. */
static DAT_EVENT poll_event(DAT_EVD_HANDLE evd)
{
    DAT_RETURN status;
    DAT_EVENT event;
    while (DAT_GET_TYPE(status = dat_evd_dequeue(evd, &event)) == DAT_QUEUE_EMPTY)
        sched_yield();
    OK(status);
    return event;
}

/*
 * Makes the calls of a connection. This function itself calls no function of the C library that is
 * a cancellation point.
 */
static void *make_calls(void *argument)
{
    struct calls *calls = argument;
    static struct end near, far; /* on the heap of the process, not on a stack that ends */
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;

    pthread_cancel(pthread_self());
    end_open(&near, 4096, DTOS);
    end_open(&far, 4096, DTOS);
    OK(dat_psp_create(near.ia, calls->port, near.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    post_receives(&near, DTOS, PING);
    start_connect(far.ep, calls->port);
    event = poll_event(near.cr);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, near.ep, 0, NULL));
    EXPECT(poll_event(near.connect).event_number == DAT_CONNECTION_EVENT_ESTABLISHED,
           "not connected");
    EXPECT(poll_event(far.connect).event_number == DAT_CONNECTION_EVENT_ESTABLISHED,
           "not connected");
    OK(dat_psp_free(psp));
    for (DAT_UINT64 i = 0; i < DTOS; i++)
        send_one(&far, i);
    for (int i = 0; i < DTOS; i++) {
        poll_event(near.recv);
        poll_event(far.request);
    }
    OK(dat_ep_disconnect(far.ep, DAT_CLOSE_GRACEFUL_FLAG));
    poll_event(far.connect);
    poll_event(near.connect);
    end_close(&far);
    end_close(&near);
    atomic_fetch_add(&calls->done, 1);
    pthread_testcancel();
    return NULL;
}

static void make_all_calls(void)
{
    for (int round = 1; round <= 20; round++) {
        struct calls calls = {.port = free_port()};
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, make_calls, &calls) == 0, "no thread");
        expect_cancelled(thread);
        EXPECT(calls.done == 1, "the thread has ended in a call that does not wait");
    }
}

/* ---- cycles ---------------------------------------------------------------------------------- */

enum { CYCLES = 40 };

struct cycle {
    struct end near, far;
    DAT_CONN_QUAL port;
    DAT_PSP_HANDLE psp;
    atomic_int rounds;
};

/*
 * Connects and disconnects. The port is reserved by the listener, so this function calls no
 * cancellation point except the waits.
 */
static void *connect_again_and_again(void *argument)
{
    struct cycle *cycle = argument;
    for (;;) {
        start_connect(cycle->far.ep, cycle->port);
        accept_next(cycle->near.cr, cycle->near.ep, cycle->near.connect);
        wait_established(cycle->far.connect);
        post_receives(&cycle->near, 1, PING);
        send_one(&cycle->far, 1);
        wait_event(cycle->near.recv);
        wait_event(cycle->far.request);
        OK(dat_ep_disconnect(cycle->far.ep, DAT_CLOSE_GRACEFUL_FLAG));
        wait_event(cycle->far.connect);
        wait_event(cycle->near.connect);
        OK(dat_ep_reset(cycle->far.ep));
        OK(dat_ep_reset(cycle->near.ep));
        atomic_fetch_add(&cycle->rounds, 1);
    }
    return NULL;
}

static void cancel_cycles(void)
{
    for (int i = 0; i < CYCLES; i++) {
        struct cycle cycle;
        pthread_t thread;

        memset(&cycle, 0, sizeof cycle);
        end_open(&cycle.near, 4096, DTOS);
        end_open(&cycle.far, 4096, DTOS);
        cycle.port = free_port();
        OK(dat_psp_create(cycle.near.ia, cycle.port, cycle.near.cr, DAT_PSP_CONSUMER_FLAG,
                          &cycle.psp));
        EXPECT(pthread_create(&thread, NULL, connect_again_and_again, &cycle) == 0, "no thread");
        while (cycle.rounds < i % 4)
            sched_yield();
        for (int yields = 0; yields < i; yields++)
            sched_yield();
        pthread_cancel(thread);
        expect_cancelled(thread);
        OK(dat_ia_close(cycle.far.ia, DAT_CLOSE_ABRUPT_FLAG));
        OK(dat_ia_close(cycle.near.ia, DAT_CLOSE_ABRUPT_FLAG));
        free(cycle.near.buffer);
        free(cycle.far.buffer);
    }
}

/* ---- late ------------------------------------------------------------------------------------ */

enum { LATE_ROUNDS = 5 };

/* What the thread that waits is doing. */
enum late_step { IN_WAIT, IN_SLEEP_OF_ITS_OWN, AT_TEST_POINT };

struct late {
    struct waiter waiter;
    int may_go_on[2]; /* a pipe */
    atomic_int step;
    enum late_step ended_at;
};

static void note_step(void *argument)
{
    struct late *late = argument;
    late->ended_at = late->step;
}

/* After the wait, the thread disables its cancellation, and sleeps until it may go on. */
static void *wait_then_sleep(void *argument)
{
    struct late *late = argument;
    struct pollfd readable = {.fd = late->may_go_on[0], .events = POLLIN};
    int state;

    pthread_cleanup_push(note_step, late);
    atomic_store(&late->waiter.thread, (int)syscall(SYS_gettid));
    take_one(&late->waiter);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    atomic_store(&late->step, IN_SLEEP_OF_ITS_OWN);
    while (ppoll(&readable, 1, NULL, NULL) < 1)
        ;
    atomic_store(&late->step, AT_TEST_POINT);
    pthread_setcancelstate(state, &state);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

struct cancellation {
    pthread_t of;
    atomic_int listener; /* tells of the signal, which waits for the listener's answer */
};

/* Cancels a thread. The system call that sends the signal waits until the listener permits it. */
static void *cancel_with_late_signal(void *argument)
{
    struct cancellation *cancellation = argument;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    int listener;

    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl: %s", strerror(errno));
    listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                            &program);
    EXPECT(listener >= 0, "seccomp: %s", strerror(errno));
    atomic_store(&cancellation->listener, listener);
    EXPECT(pthread_cancel(cancellation->of) == 0, "no such thread");
    return NULL;
}

/* The system call in which a thread is, and its first argument. The number is -1 in no call. */
static long system_call(int thread, unsigned long *argument)
{
    char path[64], text[128];
    long number = -1;
    FILE *file;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    file = fopen(path, "r");
    EXPECT(file != NULL, "%s: %s", path, strerror(errno));
    if (fgets(text, sizeof text, file) == NULL || sscanf(text, "%ld %lx", &number, argument) != 2)
        number = -1;
    fclose(file);
    return number;
}

static void cancel_late(DAT_EVD_HANDLE evd, const char *what)
{
    struct late late = {.waiter = {.evd = evd, .cno = DAT_HANDLE_NULL}};
    struct cancellation cancellation = {.listener = -1};
    struct seccomp_notif notification;
    struct seccomp_notif_resp answer;
    unsigned long slept_on = 0, sleeps_on = 0;
    pthread_t canceller;
    long number;

    EXPECT(pipe(late.may_go_on) == 0, "pipe: %s", strerror(errno));
    EXPECT(pthread_create(&cancellation.of, NULL, wait_then_sleep, &late) == 0, "no thread");
    await_sleep(&late.waiter);
    system_call(late.waiter.thread, &slept_on);
    EXPECT(pthread_create(&canceller, NULL, cancel_with_late_signal, &cancellation) == 0,
           "no thread");
    while (cancellation.listener < 0)
        sched_yield();
    memset(&notification, 0, sizeof notification);
    EXPECT(ioctl(cancellation.listener, SECCOMP_IOCTL_NOTIF_RECV, &notification) == 0,
           "no signal: %s", strerror(errno));

    /* The event comes before the signal. The thread sleeps again: on its own, or in the C library,
     * which waits for the signal. */
    post_se(evd, 1);
    do {
        sched_yield();
        number = system_call(late.waiter.thread, &sleeps_on);
    } while (late.step == IN_SLEEP_OF_ITS_OWN ? number != SYS_ppoll
                                              : number != SYS_futex || sleeps_on == slept_on);
    memset(&answer, 0, sizeof answer);
    answer.id = notification.id;
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    EXPECT(ioctl(cancellation.listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0, "no answer: %s",
           strerror(errno));
    EXPECT(pthread_join(canceller, NULL) == 0, "no such thread");
    EXPECT(write(late.may_go_on[1], "", 1) == 1, "the pipe is closed");
    expect_cancelled(cancellation.of);
    EXPECT(late.ended_at == AT_TEST_POINT, "%s: the thread has ended at step %d", what,
           late.ended_at);
    close(late.may_go_on[0]);
    close(late.may_go_on[1]);
    close(cancellation.listener);
}

static void let_signals_be_late(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, evd;
    struct waiter leader = {.cno = DAT_HANDLE_NULL, .moment = ASLEEP};
    DAT_IA_HANDLE ia;
    pthread_t thread;

    OK(dat_ia_open(ia_under_test(), 8, &async, &ia));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &idle));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd));
    for (int round = 0; round < LATE_ROUNDS; round++)
        cancel_late(evd, "a thread in the poller");
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &leader.evd));
    EXPECT(pthread_create(&thread, NULL, wait_until_cancelled, &leader) == 0, "no thread");
    await_sleep(&leader);
    for (int round = 0; round < LATE_ROUNDS; round++)
        cancel_late(evd, "a thread beside one in the poller");
    pthread_cancel(thread);
    expect_cancelled(thread);
    OK(dat_evd_free(leader.evd));
    OK(dat_evd_free(evd));
    OK(dat_evd_free(idle));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

/* ---- agent ----------------------------------------------------------------------------------- */

static atomic_int agent_calls;

static void exit_agent(DAT_PVOID instance_data, DAT_EVD_HANDLE evd)
{
    (void)instance_data;
    (void)evd;
    atomic_fetch_add(&agent_calls, 1);
    pthread_exit(NULL);
}

static void let_agent_exit(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = {.instance_data = NULL, .proxy_agent_func = exit_agent};
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, evd;
    DAT_CNO_HANDLE cno;
    DAT_IA_HANDLE ia;

    OK(dat_ia_open(ia_under_test(), 8, &async, &ia));
    OK(dat_cno_create(ia, agent, &cno));
    OK(dat_evd_create(ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    for (int number = 1; number <= 100; number++) {
        DAT_EVENT event;
        post_se(evd, number);
        while (agent_calls < number)
            sched_yield();
        OK(dat_evd_dequeue(evd, &event));
    }
    OK(dat_evd_free(evd));
    OK(dat_cno_free(cno));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    if (strcmp(how, "waits") == 0)
        waits();
    else if (strcmp(how, "calls") == 0)
        make_all_calls();
    else if (strcmp(how, "cycles") == 0)
        cancel_cycles();
    else if (strcmp(how, "agent") == 0)
        let_agent_exit();
    else if (strcmp(how, "late") == 0)
        let_signals_be_late();
    else
        FAIL("usage: cancelled waits|calls|cycles|agent|late");
    puts("ok");
    return 0;
}
