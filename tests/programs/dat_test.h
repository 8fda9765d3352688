/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Code that the C programs of this directory share: checked calls, one end of a connection, and a
 * peer process.
 */

#ifndef DAT_TEST_H
#define DAT_TEST_H

#ifdef UDAPL_1_2
#include <dat/udat.h>
/* In uDAPL 1.2, a region has no type of addresses, and two names differ. */
#define VIRTUAL_ADDRESSES
#define REMOTE_ADDRESS target_address
typedef DAT_VLEN DAT_SEG_LENGTH;
#else
#include <dat2/udat.h>
#define VIRTUAL_ADDRESSES DAT_VA_TYPE_VA,
#define REMOTE_ADDRESS virtual_address
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000u /* one second in the unit of DAT_TIMEOUT */
/*
 * The time limit of a wait for an event that must happen. It does not measure speed: it ends a
 * program that would hang, with a message that names the missing event.
 */
#define WAIT_LIMIT_SECONDS 120
#define WAIT_LIMIT (WAIT_LIMIT_SECONDS * SECOND)

/* Ends the program with a message that starts with the file and line. */
#define FAIL(...)                                                   \
    do {                                                            \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);             \
        fprintf(stderr, __VA_ARGS__);                               \
        fputc('\n', stderr);                                        \
        exit(1);                                                    \
    } while (0)

#define EXPECT(condition, ...)       \
    do {                             \
        if (!(condition))            \
            FAIL(__VA_ARGS__);       \
    } while (0)

/* A DAT call that must succeed. */
#define OK(call)                                                                     \
    do {                                                                             \
        DAT_RETURN status_ = (call);                                                 \
        if (status_ != DAT_SUCCESS)                                                  \
            FAIL("%s: %s", #call, status_text(status_));                             \
    } while (0)

static inline const char *status_text(DAT_RETURN status)
{
    static char text[256];
    const char *major = "?", *minor = "?";
    dat_strerror(status, &major, &minor);
    snprintf(text, sizeof text, "%s %s (0x%x)", major, minor, status);
    return text;
}

static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The name of the adapter under test. */
static inline char *ia_under_test(void)
{
    char *name = getenv("OPENDAT_TEST_IA");
    EXPECT(name, "OPENDAT_TEST_IA does not say which adapter to open");
    return name;
}

/*
 * One process's end of a connection: an adapter, a registered buffer, an endpoint, and the objects
 * that these need.
 */
struct end {
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EVD_HANDLE async, recv, request, connect, cr;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT lmr_context;
    DAT_RMR_CONTEXT rmr_context;
    char *buffer;
    size_t size;
};

/* Attributes of an endpoint on which `dtos` operations can be posted in each direction. */
static inline DAT_EP_ATTR ep_attributes(DAT_COUNT dtos)
{
    DAT_EP_ATTR attr;
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    /* Only these flags are valid if an EVD also takes other events than completions. */
    attr.recv_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
    attr.request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
    attr.max_recv_dtos = dtos;
    attr.max_request_dtos = dtos;
    attr.max_recv_iov = 2;
    attr.max_request_iov = 2;
    attr.max_rdma_read_in = 4;
    attr.max_rdma_read_out = 4;
    attr.max_rdma_read_iov = 1;
    attr.max_rdma_write_iov = 2;
    return attr;
}

static inline void end_open(struct end *end, size_t size, DAT_COUNT dtos)
{
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN registered_size;
    DAT_VADDR registered_address;
    DAT_EP_ATTR attr = ep_attributes(dtos);

    memset(end, 0, sizeof *end);
    end->size = size;
    EXPECT(posix_memalign((void **)&end->buffer, 4096, size) == 0, "no memory");
    memset(end->buffer, 0, size);
    end->async = DAT_HANDLE_NULL;
    OK(dat_ia_open(ia_under_test(), 8, &end->async, &end->ia));
    OK(dat_pz_create(end->ia, &end->pz));
    OK(dat_evd_create(end->ia, dtos + 1, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &end->recv));
    OK(dat_evd_create(end->ia, dtos + 1, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &end->request));
    OK(dat_evd_create(end->ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &end->connect));
    OK(dat_evd_create(end->ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &end->cr));
    memset(&region, 0, sizeof region);
    region.for_va = end->buffer;
    OK(dat_lmr_create(end->ia, DAT_MEM_TYPE_VIRTUAL, region, size, end->pz, DAT_MEM_PRIV_ALL_FLAG,
                      VIRTUAL_ADDRESSES &end->lmr, &end->lmr_context, &end->rmr_context,
                      &registered_size, &registered_address));
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &end->ep));
}

/* Frees all objects. The graceful close fails if an object is left. */
static inline void end_close(struct end *end)
{
    OK(dat_ep_free(end->ep));
    OK(dat_lmr_free(end->lmr));
    OK(dat_evd_free(end->recv));
    OK(dat_evd_free(end->request));
    OK(dat_evd_free(end->connect));
    OK(dat_evd_free(end->cr));
    OK(dat_pz_free(end->pz));
    OK(dat_ia_close(end->ia, DAT_CLOSE_GRACEFUL_FLAG));
    free(end->buffer);
}

/* Returns a TCP port that no socket uses. */
static inline DAT_CONN_QUAL free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
               getsockname(fd, (struct sockaddr *)&address, &length) == 0,
           "no free port: %s", strerror(errno));
    close(fd);
    return ntohs(address.sin_port);
}

/*
 * Takes the next event, which must come. The caller's position and the EVD's expression appear in
 * the message.
 */
#define wait_event(evd) wait_event_at(evd, #evd, __FILE__, __LINE__)

static inline DAT_EVENT wait_event_at(DAT_EVD_HANDLE evd, const char *name, const char *file,
                                      int line)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN status = dat_evd_wait(evd, WAIT_LIMIT, 1, &event, &more);
    EXPECT(status == DAT_SUCCESS, "%s:%d: no event on %s within %d s: %s", file, line, name,
           WAIT_LIMIT_SECONDS, status_text(status));
    return event;
}

static inline void wait_established(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event = wait_event(evd);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED, "not connected: event 0x%x",
           event.event_number);
}

/* Accepts the next request on the EVD with this endpoint. */
static inline void accept_next(DAT_EVD_HANDLE cr, DAT_EP_HANDLE ep, DAT_EVD_HANDLE connect)
{
    DAT_EVENT event = wait_event(cr);
    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "no request: event 0x%x",
           event.event_number);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
    wait_established(connect);
}

/* The address of this host's adapters: the loopback address, or OPENDAT_TEST_ADDRESS. */
static inline struct sockaddr_storage peer_address(void)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    char *text = getenv("OPENDAT_TEST_ADDRESS");
    if (text == NULL)
        text = "127.0.0.1";
    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&address)->sin_addr) == 1)
        return address;
    address.ss_family = AF_INET6;
    EXPECT(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr) == 1,
           "%s is not an address", text);
    return address;
}

static inline void start_connect(DAT_EP_HANDLE ep, DAT_CONN_QUAL port)
{
    struct sockaddr_storage address = peer_address();
    OK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&address, port, WAIT_LIMIT, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
}

static inline DAT_LMR_TRIPLET local_segment(const struct end *end, size_t offset, size_t length)
{
    DAT_LMR_TRIPLET segment = {
        .virtual_address = (DAT_VADDR)(uintptr_t)(end->buffer + offset),
        .segment_length = (DAT_SEG_LENGTH)length,
        .lmr_context = end->lmr_context,
    };
    return segment;
}

/* What a process sends to its peer through a pipe before they connect. */
struct introduction {
    DAT_CONN_QUAL port;
    DAT_VADDR address;
    DAT_RMR_CONTEXT rmr_context;
};

static inline DAT_RMR_TRIPLET remote_segment(const struct introduction *peer, size_t offset,
                                             size_t length)
{
    DAT_RMR_TRIPLET segment = {
        .REMOTE_ADDRESS = peer->address + offset,
        .segment_length = (DAT_SEG_LENGTH)length,
        .rmr_context = peer->rmr_context,
    };
    return segment;
}

/*
 * Listens, sends the port and the buffer's address and key through `fd`, and accepts one
 * connection.
 */
static inline void serve_one(struct end *end, int fd)
{
    struct introduction self = {free_port(), (DAT_VADDR)(uintptr_t)end->buffer, end->rmr_context};
    DAT_PSP_HANDLE psp;
    OK(dat_psp_create(end->ia, self.port, end->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    EXPECT(write(fd, &self, sizeof self) == sizeof self, "the peer has gone");
    accept_next(end->cr, end->ep, end->connect);
    OK(dat_psp_free(psp));
}

/* Connects to the process that sends its introduction through `fd`. */
static inline struct introduction connect_to(struct end *end, int fd)
{
    struct introduction peer;
    EXPECT(read(fd, &peer, sizeof peer) == sizeof peer, "the peer has not sent its port");
    start_connect(end->ep, peer.port);
    wait_established(end->connect);
    return peer;
}

/*
 * Posts `count` receives of `length` octets each, all into the start of the buffer. The cookies
 * count from 0.
 */
static inline void post_receives(struct end *end, DAT_COUNT count, size_t length)
{
    for (DAT_COUNT i = 0; i < count; i++) {
        DAT_LMR_TRIPLET segment = local_segment(end, (size_t)i * length, length);
        DAT_DTO_COOKIE cookie = {.as_64 = (DAT_UINT64)i};
        OK(dat_ep_post_recv(end->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
}

/* Waits for the child process, which must end with exit code 0. */
static inline void join(pid_t child)
{
    int status;
    EXPECT(waitpid(child, &status, 0) == child, "no child: %s", strerror(errno));
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the peer process failed, status 0x%x",
           status);
}

#endif
