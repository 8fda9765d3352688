/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Many connections whose requests are suppressed, and whose request EVDs always contain an event
 * and are never polled. Ended connections must take no memory and must not make later connections
 * slower.
 *
 *   soak COUNT [apart]   makes COUNT connections, which end gracefully, abruptly and by
 *                        dat_ep_free, with sends under way. With `apart`, the program uses a
 *                        network namespace of its own if the system allows that, because TCP keeps
 *                        the ports of ended connections for a minute
 *
 * The program checks the memory, and prints the time without checking it.
 */

#define _GNU_SOURCE

#include "usage.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

enum { PARTS = 10, SENDS = 4, LENGTH = 64, DTOS = 8 };
/*
 * If each connection left an object, the memory would grow by more octets than this for each
 * connection.
 */
#define OBJECT_BYTES 100
/* Tables may grow by this many octets in total. They do not shrink. */
#define TABLES_BYTES (8 << 20)
/* The time for which the library may remember ended connections after the second part. */
#define FORGET_SECONDS 5

/* One of the two endpoints of a connection. Both endpoints belong to the same adapter. */
struct half {
    DAT_EVD_HANDLE request, recv, connect;
    DAT_EP_HANDLE ep;
};

static struct end end;

static void make_endpoint(struct half *half)
{
    DAT_EP_ATTR attr = ep_attributes(DTOS);
    OK(dat_ep_create(end.ia, end.pz, half->recv, half->request, half->connect, &attr, &half->ep));
}

/* Makes one endpoint. Its request EVD has an event that the consumer does not take. */
static void make_half(struct half *half)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_create(end.ia, DTOS + 1, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &half->recv));
    OK(dat_evd_create(end.ia, 2 * DTOS, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG,
                      &half->request));
    OK(dat_evd_create(end.ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &half->connect));
    event.evd_handle = half->request;
    OK(dat_evd_post_se(half->request, &event));
    make_endpoint(half);
}

static void send_suppressed(struct half *from)
{
    for (int i = 0; i < SENDS; i++) {
        DAT_LMR_TRIPLET segment = local_segment(&end, 0, LENGTH);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)i};
        OK(dat_ep_post_send(from->ep, 1, &segment, cookie, DAT_COMPLETION_SUPPRESS_FLAG));
    }
}

static void post_receives_of(struct half *half)
{
    for (int i = 0; i < SENDS; i++) {
        DAT_LMR_TRIPLET segment = local_segment(&end, LENGTH, LENGTH);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)i};
        OK(dat_ep_post_recv(half->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
}

static void take_all(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS)
        ;
}

static void await_end(DAT_EVD_HANDLE connect)
{
    DAT_EVENT event = wait_event(connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED ||
               event.event_number == DAT_CONNECTION_EVENT_BROKEN,
           "event 0x%x", event.event_number);
}

static void connection(struct half *caller, struct half *listener, DAT_CONN_QUAL port, int number)
{
    post_receives_of(caller);
    post_receives_of(listener);
    start_connect(caller->ep, port);
    accept_next(end.cr, listener->ep, listener->connect);
    wait_established(caller->connect);
    send_suppressed(caller);
    if (number % 3 == 0)
        OK(dat_ep_disconnect(caller->ep, DAT_CLOSE_GRACEFUL_FLAG));
    if (number % 3 == 1)
        OK(dat_ep_disconnect(caller->ep, DAT_CLOSE_ABRUPT_FLAG));
    if (number % 3 == 2)
        OK(dat_ep_free(caller->ep));
    else
        await_end(caller->connect);
    await_end(listener->connect);
    if (number % 3 != 2)
        OK(dat_ep_free(caller->ep));
    OK(dat_ep_free(listener->ep));
    take_all(caller->recv);
    take_all(listener->recv);
    take_all(caller->connect);
    take_all(end.async);
    make_endpoint(caller);
    make_endpoint(listener);
}

static bool within(const struct usage *usage, const struct usage *goal)
{
    return usage->in_use <= goal->in_use && usage->descriptors <= goal->descriptors &&
           usage->threads <= goal->threads;
}

/* Waits until ended connections are forgotten, and their threads and descriptors are gone. */
static struct usage settled(const struct usage *goal, double seconds)
{
    double limit = now() + seconds;
    struct usage current = usage();
    while (!within(&current, goal) && now() < limit) {
        usleep(10000);
        current = usage();
    }
    return current;
}

static void enter_own_network(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd;
    if (unshare(CLONE_NEWNET) != 0) {
        printf("no network namespace of its own: %s\n", strerror(errno));
        return;
    }
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    EXPECT(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0,
           "the loopback device cannot be brought up: %s", strerror(errno));
    close(fd);
}

int main(int argc, char **argv)
{
    int count = argc >= 2 ? atoi(argv[1]) : 0;
    struct half caller, listener;
    DAT_CONN_QUAL port;
    DAT_PSP_HANDLE psp;
    struct usage first = {0};

    start_without_caches(argv);
    EXPECT(count >= PARTS, "usage: soak COUNT [apart]");
    if (argc > 2)
        enter_own_network();
    end_open(&end, 4096, DTOS);
    make_half(&caller);
    make_half(&listener);
    port = free_port();
    OK(dat_psp_create(end.ia, port, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    for (int part = 0; part < PARTS; part++) {
        double started = now();
        struct usage goal = first, after;
        for (int i = 0; i < count / PARTS; i++)
            connection(&caller, &listener, port, i);
        started = (now() - started) * 1e6 / (count / PARTS);
        goal.in_use += TABLES_BYTES + (long)OBJECT_BYTES * (part - 1) * (count / PARTS);
        /* The memory after each later part is compared with the memory after the second part. */
        after = settled(&goal, part == 0 ? 0 : part == 1 ? FORGET_SECONDS : WAIT_LIMIT_SECONDS);
        printf("%d connections: %.0f us each, %ld bytes in use\n", (part + 1) * (count / PARTS),
               started, after.in_use);
        if (part == 1)
            first = after;
        EXPECT(part < 2 || within(&after, &goal),
               "after %d s: %ld bytes more than before, %ld descriptors more, %ld threads more",
               WAIT_LIMIT_SECONDS, after.in_use - first.in_use,
               after.descriptors - first.descriptors, after.threads - first.threads);
    }
    OK(dat_psp_free(psp));
    for (int i = 0; i < 2; i++) {
        struct half *half = i == 0 ? &caller : &listener;
        OK(dat_ep_free(half->ep));
        OK(dat_evd_free(half->recv));
        OK(dat_evd_free(half->request));
        OK(dat_evd_free(half->connect));
    }
    end_close(&end);
    puts("ok");
    return 0;
}
