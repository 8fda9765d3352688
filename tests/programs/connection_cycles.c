/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes and ends thousands of connections, in all ways, within one process. Afterwards the process
 * must have as many file descriptors, threads and allocated octets as before. The library may
 * remember an ended connection for a second or two, so the program waits before it measures, after
 * every thousand connections. Tables may grow for some time: how large a table becomes depends on
 * how many ended connections are remembered at a time, which differs from one thousand to the next.
 * Such growth has a limit, while a leak goes on in every thousand. The test passes if five
 * thousands in a row leave nothing behind.
 *
 *   connection_cycles [COUNT]   COUNT is the number of connections between two measurements
 *                               (default: a thousand)
 */

#include "dat_test.h"
#include "usage.h"

enum { WARM_UP = 100, CLEAN_ROWS_WANTED = 5, MAX_ROWS = 30, LENGTH = 64 };
/* How long the library may remember an ended connection. */
#define FORGET_SECONDS 5
/*
 * The tolerated growth. If each of a thousand connections left one object, they would leave more.
 */
#define TOLERANCE_BYTES (16 * 1024)

static int within(const struct usage *now, const struct usage *goal)
{
    return now->descriptors <= goal->descriptors && now->threads <= goal->threads &&
           now->in_use <= goal->in_use + TOLERANCE_BYTES;
}

/*
 * The passive side of the connection: a second endpoint of the same adapter, with its own queues.
 */
struct passive {
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL port;
    DAT_EVD_HANDLE recv, request, connect;
    DAT_EP_HANDLE ep;
};

static void expect_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event = wait_event(evd);
    EXPECT(event.event_number == number, "event 0x%x in place of 0x%x", event.event_number, number);
}

static void drain(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    while (dat_evd_dequeue(evd, &event) == DAT_SUCCESS)
        ;
}

static void say_hello(struct end *end, DAT_EP_HANDLE from, DAT_EVD_HANDLE sent,
                      DAT_EVD_HANDLE received)
{
    DAT_LMR_TRIPLET segment = local_segment(end, 0, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_EVENT event;
    OK(dat_ep_post_send(from, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    event = wait_event(sent);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "the send failed");
    event = wait_event(received);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "the receive failed");
}

/* Waits for the request of a call. If there is none, says how the call has ended. */
static DAT_CR_HANDLE wait_request(struct end *end)
{
    DAT_EVENT event, of_caller = {.event_number = (DAT_EVENT_NUMBER)0};
    DAT_COUNT more;
    DAT_RETURN status = dat_evd_wait(end->cr, WAIT_LIMIT, 1, &event, &more);
    if (status != DAT_SUCCESS)
        dat_evd_dequeue(end->connect, &of_caller);
    EXPECT(status == DAT_SUCCESS, "no request: %s; the caller has the event 0x%x",
           status_text(status), of_caller.event_number);
    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "event 0x%x", event.event_number);
    return event.event_data.cr_arrival_event_data.cr_handle;
}

/* Two receives are posted and one is used, so each connection ends with a receive to flush. */
static void connect_and_end(struct end *end, struct passive *passive, int cycle)
{
    DAT_LMR_TRIPLET segment = local_segment(end, LENGTH, LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = 2};
    for (int i = 0; i < 2; i++) {
        OK(dat_ep_post_recv(passive->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
    start_connect(end->ep, passive->port);
    OK(dat_cr_accept(wait_request(end), passive->ep, 0, NULL));
    wait_established(passive->connect);
    wait_established(end->connect);
    say_hello(end, end->ep, end->request, passive->recv);
    say_hello(end, passive->ep, passive->request, end->recv);
    if (cycle % 2)
        OK(dat_ep_disconnect(end->ep,
                             cycle % 4 == 1 ? DAT_CLOSE_GRACEFUL_FLAG : DAT_CLOSE_ABRUPT_FLAG));
    else
        OK(dat_ep_disconnect(passive->ep,
                             cycle % 4 == 0 ? DAT_CLOSE_GRACEFUL_FLAG : DAT_CLOSE_ABRUPT_FLAG));
    expect_event(end->connect, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_event(passive->connect, DAT_CONNECTION_EVENT_DISCONNECTED);
}

static void connect_and_reject(struct end *end, struct passive *passive)
{
    start_connect(end->ep, passive->port);
    OK(dat_cr_reject(wait_request(end), 0, NULL));
    expect_event(end->connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
}

/* Resets the endpoints for the next cycle, or replaces them. */
static void reset_or_replace_endpoints(struct end *end, struct passive *passive, int cycle)
{
    if (cycle % 3) {
        OK(dat_ep_reset(end->ep));
        OK(dat_ep_reset(passive->ep));
    } else {
        DAT_EP_ATTR attr = ep_attributes(8);
        OK(dat_ep_free(end->ep));
        OK(dat_ep_free(passive->ep));
        OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &end->ep));
        OK(dat_ep_create(end->ia, end->pz, passive->recv, passive->request, passive->connect, &attr,
                         &passive->ep));
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
            connect_and_reject(end, passive);
        else
            connect_and_end(end, passive, cycle);
        reset_or_replace_endpoints(end, passive, cycle);
    }
}

/*
 * Waits until the usage is no higher than the goal. The wait ends after the time for which the
 * library may remember an ended connection.
 */
static struct usage settled_usage(const struct usage *goal)
{
    double limit = now() + FORGET_SECONDS;
    struct usage current = usage();
    while (!within(&current, goal) && now() < limit) {
        usleep(10000);
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
    double spent = 0;
    int clean_rows, thousands = 0;

    start_without_caches(argv);
    end_open(&end, 4096, 8);
    passive.port = free_port();
    OK(dat_evd_create(end.ia, 9, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &passive.recv));
    OK(dat_evd_create(end.ia, 9, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &passive.request));
    OK(dat_evd_create(end.ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &passive.connect));
    OK(dat_ep_create(end.ia, end.pz, passive.recv, passive.request, passive.connect, &attr,
                     &passive.ep));
    OK(dat_psp_create(end.ia, passive.port, end.cr, DAT_PSP_CONSUMER_FLAG, &passive.psp));

    cycles(&end, &passive, WARM_UP);
    before = usage();
    for (clean_rows = 0; clean_rows < CLEAN_ROWS_WANTED; thousands++) {
        double started = now();
        EXPECT(thousands < MAX_ROWS, "usage still grows after %d rounds", MAX_ROWS);
        cycles(&end, &passive, count);
        spent += now() - started;
        after = settled_usage(&before);
        printf("descriptors %ld, then %ld; threads %ld, then %ld; bytes %ld, then %ld\n",
               before.descriptors, after.descriptors, before.threads, after.threads, before.in_use,
               after.in_use);
        clean_rows = within(&after, &before) ? clean_rows + 1 : 0;
        if (clean_rows == 0)
            before.in_use = after.in_use;
    }
    printf("%.0f us for each of %d cycles\n", spent * 1e6 / count / thousands, count * thousands);

    OK(dat_psp_free(passive.psp));
    OK(dat_ep_free(passive.ep));
    OK(dat_evd_free(passive.recv));
    OK(dat_evd_free(passive.request));
    OK(dat_evd_free(passive.connect));
    end_close(&end);
    puts("ok");
    return 0;
}
