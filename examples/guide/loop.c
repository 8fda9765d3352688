/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An event loop: a server and a client wait for DAT events and for other descriptors with poll().
 *
 *   loop server [IA]             loop client HOST [IA]
 *
 * The server returns each message to its sender, and ends at SIGTERM or SIGINT. The client sends a
 * message at each tick of a timer. docs/guide.md explains the program.
 */

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "guide.h"

enum {
    QUALIFIER = 7804,
    CLIENTS = 8,
    SIZE = 64,
    MESSAGES = 5,
    TICK = 20 * 1000000 /* nanoseconds */
};

/* An established connection, its end, and one receive or send at a time, with room to spare. */
enum { EVENTS_OF_CLIENT = 4 };

/* Each endpoint uses the memory with its own number, which is also the cookie of its operations. */
static DAT_EP_HANDLE eps[CLIENTS];
static char memory[CLIENTS][SIZE];
static struct region region;
static DAT_CNO_HANDLE cno;
static DAT_FD dat_fd;
static DAT_EVD_HANDLE requests; /* requests for connections */
static DAT_EVD_HANDLE events;   /* everything else */
static int messages;

static void die(const char *call)
{
    perror(call);
    exit(1);
}

/* ANCHOR: wait */
typedef void handler(const DAT_EVENT *event);

static void take_events(DAT_EVD_HANDLE evd, handler *handle)
{
    DAT_EVENT event;
    DAT_RETURN status;

    while ((status = dat_evd_dequeue(evd, &event)) == DAT_SUCCESS)
        handle(&event);
    if (DAT_GET_TYPE(status) != DAT_QUEUE_EMPTY)
        check("dat_evd_dequeue", status);
}

/* Handles the events of the EVDs of the CNO until `fd` is readable. */
static void run_until_readable(int fd, handler *handle)
{
    struct pollfd waiting[] = {{.fd = dat_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    DAT_EVD_HANDLE evd;
    DAT_RETURN status;

    do {
        if (poll(waiting, 2, -1) < 0)
            die("poll");
        /* A trigger says that an EVD has events, and not how many: take all of them. */
        while ((status = dat_cno_trigger(cno, &evd)) == DAT_SUCCESS)
            take_events(evd, handle);
        if (DAT_GET_TYPE(status) != DAT_QUEUE_EMPTY)
            check("dat_cno_trigger", status);
    } while (waiting[1].revents == 0);
}
/* ANCHOR_END: wait */

static void post_receive(DAT_EP_HANDLE ep, DAT_UINT64 number)
{
    DAT_LMR_TRIPLET segment = part(&region, number * SIZE, SIZE);

    check("dat_ep_post_recv", dat_ep_post_recv(ep, 1, &segment, (DAT_DTO_COOKIE){.as_64 = number},
                                               DAT_COMPLETION_DEFAULT_FLAG));
}

static void post_send(DAT_EP_HANDLE ep, DAT_UINT64 number, size_t size)
{
    DAT_LMR_TRIPLET segment = part(&region, number * SIZE, size);

    check("dat_ep_post_send", dat_ep_post_send(ep, 1, &segment, (DAT_DTO_COOKIE){.as_64 = number},
                                               DAT_COMPLETION_DEFAULT_FLAG));
}

static void accept_client(DAT_CR_HANDLE cr)
{
    size_t number = 0;

    while (number < CLIENTS && eps[number] != DAT_HANDLE_NULL)
        number++;
    if (number == CLIENTS) {
        check("dat_cr_reject", dat_cr_reject(cr, 0, NULL));
        return;
    }
    check("dat_ep_create", dat_ep_create(ia, pz, events, events, events, NULL, &eps[number]));
    post_receive(eps[number], number);
    check("dat_cr_accept", dat_cr_accept(cr, eps[number], 0, NULL));
}

static void free_client(DAT_EP_HANDLE ep)
{
    for (size_t i = 0; i < CLIENTS; i++)
        if (eps[i] == ep)
            eps[i] = DAT_HANDLE_NULL;
    check("dat_ep_free", dat_ep_free(ep));
}

static void handle_at_server(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *completion = &event->event_data.dto_completion_event_data;
    DAT_UINT64 number;

    switch (event->event_number) {
    case DAT_CONNECTION_REQUEST_EVENT:
        accept_client(event->event_data.cr_arrival_event_data.cr_handle);
        break;
    case DAT_CONNECTION_EVENT_ESTABLISHED:
        break;
    case DAT_DTO_COMPLETION_EVENT:
        number = completion->user_cookie.as_64;
        if (completion->status != DAT_DTO_SUCCESS)
            break; /* The event of the connection's end follows. */
        if (completion->operation == DAT_DTO_RECEIVE) {
            messages++;
            post_send(eps[number], number, completion->transfered_length);
        } else {
            post_receive(eps[number], number);
        }
        break;
    default: /* The connection has ended, or was not established. */
        free_client(event->event_data.connect_event_data.ep_handle);
    }
}

static void serve(void)
{
    DAT_PSP_HANDLE psp;
    sigset_t signals;
    int signal_fd;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0)
        die("sigprocmask");
    signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (signal_fd < 0)
        die("signalfd");
    check("dat_psp_create", dat_psp_create(ia, QUALIFIER, requests, DAT_PSP_CONSUMER_FLAG, &psp));
    puts("listening");
    fflush(stdout);
    run_until_readable(signal_fd, handle_at_server);
    printf("%d messages returned\n", messages);
    close(signal_fd);
    check("dat_psp_free", dat_psp_free(psp));
    for (size_t i = 0; i < CLIENTS; i++)
        if (eps[i] != DAT_HANDLE_NULL)
            free_client(eps[i]);
}

static bool is_connected;

static void handle_at_client(const DAT_EVENT *event)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *completion = &event->event_data.dto_completion_event_data;

    if (event->event_number == DAT_CONNECTION_EVENT_DISCONNECTED) {
        is_connected = false;
        return;
    }
    expect(event, DAT_DTO_COMPLETION_EVENT);
    if (completion->operation == DAT_DTO_RECEIVE) {
        printf("%.*s\n", SIZE, memory[1]);
        messages++;
    }
}

static void call(const char *host)
{
    struct itimerspec tick = {.it_value.tv_nsec = TICK, .it_interval.tv_nsec = TICK};
    int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    DAT_EP_HANDLE ep;
    uint64_t ticks;
    int sent = 0;

    if (timer_fd < 0 || timerfd_settime(timer_fd, 0, &tick, NULL) != 0)
        die("timerfd");
    check("dat_ep_create", dat_ep_create(ia, pz, events, events, events, NULL, &ep));
    connect_to(ep, events, host, QUALIFIER);
    is_connected = true;
    while (messages < MESSAGES) {
        run_until_readable(timer_fd, handle_at_client);
        if (read(timer_fd, &ticks, sizeof ticks) != sizeof ticks)
            die("read");
        /* The next message is sent when the one before has returned. */
        if (sent > messages || sent == MESSAGES)
            continue;
        snprintf(memory[0], SIZE, "message %d", ++sent);
        post_receive(ep, 1);
        post_send(ep, 0, SIZE);
    }
    check("dat_ep_disconnect", dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG));
    while (is_connected)
        run_until_readable(timer_fd, handle_at_client);
    close(timer_fd);
    check("dat_ep_free", dat_ep_free(ep));
}

int main(int argc, char **argv)
{
    bool is_server = argc >= 2 && strcmp(argv[1], "server") == 0;
    int arguments = is_server ? 2 : 3;

    if (argc < arguments || argc > arguments + 1 ||
        (!is_server && strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: loop server [IA] | loop client HOST [IA]\n");
        return 2;
    }
    open_adapter(argc > arguments ? argv[arguments] : "tcp-emu");
    /* ANCHOR: create */
    check("dat_cno_fd_create", dat_cno_fd_create(ia, &dat_fd, &cno));
    check("dat_evd_create", dat_evd_create(ia, CLIENTS, cno, DAT_EVD_CR_FLAG, &requests));
    check("dat_evd_create", dat_evd_create(ia, CLIENTS * EVENTS_OF_CLIENT, cno,
                                           DAT_EVD_CONNECTION_FLAG | DAT_EVD_DTO_FLAG, &events));
    /* ANCHOR_END: create */
    region = register_memory(memory, sizeof memory, LOCAL);
    if (is_server)
        serve();
    else
        call(argv[2]);
    check("dat_lmr_free", dat_lmr_free(region.lmr));
    check("dat_evd_free", dat_evd_free(requests));
    check("dat_evd_free", dat_evd_free(events));
    check("dat_cno_free", dat_cno_free(cno));
    close_adapter();
    return 0;
}
