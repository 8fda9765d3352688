/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A process has 1,000 connections to another process at the same time. It makes them in bursts of
 * BURST, which exceeds the 64 half-open connections that softroce keeps per address. Each
 * connection carries a message each way and an RDMA write, and is then ended. No connection may be
 * lost. Both processes print the memory that malloc accounts to one connection, which is at most
 * MAX_BYTES.
 */

#include "usage.h"

#include <sys/resource.h>

enum { CONNECTIONS = 1000, BURST = 200, LENGTH = 64, DTOS = 8, MAX_BYTES = 8192 };
/*
 * For each connection the buffer holds octets to send, a received message, and octets that the peer
 * writes.
 */
enum area { OUTGOING, MESSAGE, WRITTEN, AREAS };
#define BUFFER ((size_t)AREAS * CONNECTIONS * LENGTH)

static DAT_EP_HANDLE eps[CONNECTIONS];

static size_t place(enum area area, int n)
{
    return ((size_t)area * CONNECTIONS + (size_t)n) * LENGTH;
}

static void fill(struct end *end, int n, char with)
{
    memset(end->buffer + place(OUTGOING, n), with ^ (char)n, LENGTH);
    memcpy(end->buffer + place(OUTGOING, n), &n, sizeof n);
}

static void expect_filled(const struct end *end, enum area area, int n, char with)
{
    const char *found = end->buffer + place(area, n);
    EXPECT(memcmp(found, &n, sizeof n) == 0, "connection %d has the data of another connection", n);
    for (size_t i = sizeof n; i < LENGTH; i++)
        EXPECT(found[i] == (char)(with ^ (char)n), "connection %d has wrong data at %zu", n, i);
}

/* Opens the adapter. All connections share the EVDs of `end`. */
static void open_all(struct end *end)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    EXPECT(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit: %s", strerror(errno));
    end_open(end, BUFFER, DTOS);
    OK(dat_evd_resize(end->recv, 2 * CONNECTIONS));
    OK(dat_evd_resize(end->request, 2 * CONNECTIONS));
    OK(dat_evd_resize(end->connect, 2 * CONNECTIONS));
    OK(dat_evd_resize(end->cr, CONNECTIONS));
    /* The pages are touched now, so that they do not count as memory of a connection. */
    memset(end->buffer, 0xff, end->size);
}

/* Creates an endpoint and posts a receive on it. */
static DAT_EP_HANDLE endpoint(struct end *end, int n)
{
    DAT_EP_ATTR attr = ep_attributes(DTOS);
    DAT_LMR_TRIPLET segment = local_segment(end, place(MESSAGE, n), LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)n};
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &eps[n]));
    OK(dat_ep_post_recv(eps[n], 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    return eps[n];
}

static int number(DAT_EP_HANDLE ep)
{
    for (int n = 0; n < CONNECTIONS; n++)
        if (eps[n] == ep)
            return n;
    FAIL("the event is for an unknown endpoint");
}

/* Takes `count` events with this number. Each event must be for a different endpoint. */
static void expect_of_each(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER wanted, int count)
{
    bool seen[CONNECTIONS] = {false};
    for (int i = 0; i < count; i++) {
        DAT_EVENT event = wait_event(evd);
        int n = number(event.event_data.connect_event_data.ep_handle);
        EXPECT(event.event_number == wanted, "event 0x%x for connection %d", event.event_number, n);
        EXPECT(!seen[n], "event 0x%x for connection %d arrives twice", wanted, n);
        seen[n] = true;
    }
}

/* Takes a completion, and returns the number of its connection. */
static int expect_completion(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event = wait_event(evd);
    const DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    EXPECT(event.event_number == DAT_DTO_COMPLETION_EVENT, "event 0x%x", event.event_number);
    EXPECT(dto->status == DAT_DTO_SUCCESS, "connection %d: status %d", number(dto->ep_handle),
           dto->status);
    EXPECT(dto->ep_handle == eps[dto->user_cookie.as_64], "the completion is for another endpoint");
    return (int)dto->user_cookie.as_64;
}

static void send_message(struct end *end, int n)
{
    DAT_LMR_TRIPLET segment = local_segment(end, place(OUTGOING, n), LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)n};
    OK(dat_ep_post_send(eps[n], 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void write_and_send(struct end *end, const struct introduction *peer, int n)
{
    DAT_LMR_TRIPLET local = local_segment(end, place(OUTGOING, n), LENGTH);
    DAT_RMR_TRIPLET remote = remote_segment(peer, place(WRITTEN, n), LENGTH);
    DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)n};
    fill(end, n, 'c');
    OK(dat_ep_post_rdma_write(eps[n], 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    send_message(end, n);
}

/* Prints the memory that connections take when all are established. */
static void report(const char *who, long before)
{
    long each = (bytes_in_use() - before) / CONNECTIONS;
    printf("%s: %ld bytes for each connection\n", who, each);
    EXPECT(each <= MAX_BYTES, "%s: a connection takes %ld bytes", who, each);
}

static void serve(struct end *end, int fd)
{
    struct introduction self = {free_port(), (DAT_VADDR)(uintptr_t)end->buffer, end->rmr_context};
    long before = bytes_in_use();
    DAT_PSP_HANDLE psp;

    OK(dat_psp_create(end->ia, self.port, end->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    EXPECT(write(fd, &self, sizeof self) == sizeof self, "the peer has gone");
    /* The private data say which of the client's endpoints connects. */
    for (int i = 0; i < CONNECTIONS; i++) {
        DAT_EVENT event = wait_event(end->cr);
        DAT_CR_HANDLE cr = event.event_data.cr_arrival_event_data.cr_handle;
        DAT_CR_PARAM param;
        int n;
        EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "event 0x%x",
               event.event_number);
        OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
        memcpy(&n, param.private_data, sizeof n);
        EXPECT(n >= 0 && n < CONNECTIONS && !eps[n], "unexpected request of connection %d", n);
        OK(dat_cr_accept(cr, endpoint(end, n), 0, NULL));
    }
    expect_of_each(end->connect, DAT_CONNECTION_EVENT_ESTABLISHED, CONNECTIONS);
    for (int i = 0; i < CONNECTIONS; i++) {
        int n = expect_completion(end->recv);
        expect_filled(end, MESSAGE, n, 'c');
        expect_filled(end, WRITTEN, n, 'c');
        fill(end, n, 's');
        send_message(end, n);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        expect_completion(end->request);
    report("passive side", before);
    OK(dat_psp_free(psp));
    expect_of_each(end->connect, DAT_CONNECTION_EVENT_DISCONNECTED, CONNECTIONS);
}

static void call(struct end *end, int fd)
{
    struct sockaddr_storage address = peer_address();
    struct introduction peer;
    long before = bytes_in_use();
    double started = now();

    EXPECT(read(fd, &peer, sizeof peer) == sizeof peer, "the peer has not sent its port");
    for (int n = 0; n < CONNECTIONS; n++) {
        OK(dat_ep_connect(endpoint(end, n), (DAT_IA_ADDRESS_PTR)&address, peer.port, WAIT_LIMIT,
                          sizeof n, &n, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
        if (n % BURST == BURST - 1)
            expect_of_each(end->connect, DAT_CONNECTION_EVENT_ESTABLISHED, BURST);
    }
    printf("connected in %.3f s\n", now() - started);
    for (int n = 0; n < CONNECTIONS; n++)
        write_and_send(end, &peer, n);
    for (int i = 0; i < CONNECTIONS; i++)
        expect_filled(end, MESSAGE, expect_completion(end->recv), 's');
    for (int i = 0; i < 2 * CONNECTIONS; i++)
        expect_completion(end->request);
    report("active side", before);
    for (int n = 0; n < CONNECTIONS; n++)
        OK(dat_ep_disconnect(eps[n], DAT_CLOSE_GRACEFUL_FLAG));
    expect_of_each(end->connect, DAT_CONNECTION_EVENT_DISCONNECTED, CONNECTIONS);
}

int main(int argc, char **argv)
{
    int pipe_ends[2];
    struct end end;
    pid_t peer_process;

    (void)argc;
    start_without_caches(argv);
    EXPECT(pipe(pipe_ends) == 0, "pipe: %s", strerror(errno));
    peer_process = fork();
    EXPECT(peer_process >= 0, "fork: %s", strerror(errno));
    open_all(&end);
    if (peer_process == 0)
        serve(&end, pipe_ends[1]);
    else
        call(&end, pipe_ends[0]);
    for (int n = 0; n < CONNECTIONS; n++)
        OK(dat_ep_free(eps[n]));
    end_close(&end);
    if (peer_process == 0)
        return 0;
    join(peer_process);
    puts("ok");
    return 0;
}
