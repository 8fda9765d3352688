/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Thousands of connections are made and ended, in all ways, within one process: afterwards there are as many file
 * descriptors, threads and mapped bytes as before. What has ended may be remembered for a second or two, so that the first
 * thousands may take memory; five in a row do not.
 *
 *   connection_cycles [COUNT]   so many in place of a thousand
 */

#include "dat_test.h"

#include <dirent.h>

enum { WARM_UP = 100, QUIET = 5, MOST = 40, LENGTH = 64 };
/* The C library takes memory from the system in steps of this size. */
#define HEAP_STEP (128 * 1024)

struct usage {
    long descriptors, threads, mapped;
};

static long entries(const char *path)
{
    DIR *dir = opendir(path);
    long count = 0;
    EXPECT(dir, "%s: %s", path, strerror(errno));
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static struct usage usage(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    EXPECT(statm && fscanf(statm, "%ld", &pages) == 1, "no /proc/self/statm");
    fclose(statm);
    return (struct usage){entries("/proc/self/fd"), entries("/proc/self/task"), pages * sysconf(_SC_PAGESIZE)};
}

/* The passive side: a second endpoint of the same adapter, with queues of its own. */
struct passive {
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL port;
    DAT_EVD_HANDLE recv, request, connect;
    DAT_EP_HANDLE ep;
};

static void expect_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event = wait_event(evd, 10 * SECOND);
    EXPECT(event.event_number == number, "event 0x%x in place of 0x%x", event.event_number, number);
}

static void drain(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS)
        ;
}

static void say_hello(struct end *end, DAT_EP_HANDLE from, DAT_EVD_HANDLE sent, DAT_EVD_HANDLE received)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_EVENT event;
    OK(dat_ep_post_send(from, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(sent, 10 * SECOND);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "the send failed");
    event = wait_event(received, 10 * SECOND);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "the receive failed");
}

/* Two receives are posted and one is used: each connection ends with work to flush. */
static void connected(struct end *end, struct passive *passive, int cycle)
{
    DAT_LMR_TRIPLET segment = local_segment(end, LENGTH, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    for (int i = 0; i < 2; i++) {
        OK(dat_ep_post_recv(passive->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
    start_connect(end->ep, passive->port);
    accept_next(end->cr, passive->ep, passive->connect);
    wait_established(end->connect);
    say_hello(end, end->ep, end->request, passive->recv);
    say_hello(end, passive->ep, passive->request, end->recv);
    if (cycle % 2)
        OK(dat_ep_disconnect(end->ep, cycle % 4 == 1 ? DAT_CLOSE_GRACEFUL_FLAG : DAT_CLOSE_ABRUPT_FLAG));
    else
        OK(dat_ep_disconnect(passive->ep, cycle % 4 == 0 ? DAT_CLOSE_GRACEFUL_FLAG : DAT_CLOSE_ABRUPT_FLAG));
    expect_event(end->connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_event(passive->connect, DAT_CONNECTION_EVENT_DISCONNECTED);
}

static void rejected(struct end *end, struct passive *passive)
{
    DAT_EVENT event;
    start_connect(end->ep, passive->port);
    event = wait_event(end->cr, 10 * SECOND);
    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "event 0x%x", event.event_number);
    OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
    expect_event(end->connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
}

/* The endpoints are used again, or replaced. */
static void renew(struct end *end, struct passive *passive, int cycle)
{
    if (cycle % 3) {
        OK(dat_ep_reset(end->ep));
        OK(dat_ep_reset(passive->ep));
    } else {
        DAT_EP_ATTR attr = ep_attributes(8);
        OK(dat_ep_free(end->ep));
        OK(dat_ep_free(passive->ep));
        OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &end->ep));
        OK(dat_ep_create(end->ia, end->pz, passive->recv, passive->request, passive->connect, &attr, &passive->ep));
    }
    drain(end->recv);
    drain(end->request);
    drain(passive->recv);
    drain(passive->request);
}

static void cycles(struct end *end, struct passive *passive, int count)
{
    for (int cycle = 0; cycle < count; cycle++) {
        if (cycle % 10 == 9)
            rejected(end, passive);
        else
            connected(end, passive, cycle);
        renew(end, passive, cycle);
    }
}

/* Closing a socket takes the other side a moment; what is still there after 5 s stays. */
static struct usage settled_usage(const struct usage *goal)
{
    double limit = now() + 5;
    struct usage current = usage();
    while ((current.descriptors > goal->descriptors || current.threads > goal->threads) && now() < limit) {
        usleep(1000);
        current = usage();
    }
    return current;
}

int main(int argc, char **argv)
{
    int count = argc == 2 ? atoi(argv[1]) : 1000;
    struct passive passive;
    struct usage before, after;
    struct end end;
    DAT_EP_ATTR attr = ep_attributes(8);
    double started;
    int quiet, thousands = 0;

    end_open(&end, 4096, 8);
    passive.port = free_port();
    OK(dat_evd_create(end.ia, 9, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &passive.recv));
    OK(dat_evd_create(end.ia, 9, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &passive.request));
    OK(dat_evd_create(end.ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &passive.connect));
    OK(dat_ep_create(end.ia, end.pz, passive.recv, passive.request, passive.connect, &attr, &passive.ep));
    OK(dat_psp_create(end.ia, passive.port, end.cr, DAT_PSP_CONSUMER_FLAG, &passive.psp));

    cycles(&end, &passive, WARM_UP);
    before = usage();
    started = now();
    for (quiet = 0; quiet < QUIET; thousands++) {
        long mapped;
        EXPECT(thousands < MOST, "each thousand takes memory: %ld bytes are mapped", before.mapped);
        cycles(&end, &passive, count);
        mapped = usage().mapped;
        quiet = mapped <= before.mapped + HEAP_STEP ? quiet + 1 : 0;
        if (quiet == 0)
            before.mapped = mapped;
    }
    printf("%.0f us for each of %d cycles\n", (now() - started) * 1e6 / count / thousands, count * thousands);
    after = settled_usage(&before);
    printf("descriptors %ld, then %ld; threads %ld, then %ld; mapped bytes %ld, then %ld\n", before.descriptors,
           after.descriptors, before.threads, after.threads, before.mapped, after.mapped);
    EXPECT(after.descriptors <= before.descriptors, "file descriptors are left");
    EXPECT(after.threads <= before.threads, "threads are left");
    EXPECT(after.mapped <= before.mapped + HEAP_STEP, "memory is left");

    OK(dat_psp_free(passive.psp));
    OK(dat_ep_free(passive.ep));
    OK(dat_evd_free(passive.recv));
    OK(dat_evd_free(passive.request));
    OK(dat_evd_free(passive.connect));
    end_close(&end);
    puts("ok");
    return 0;
}
