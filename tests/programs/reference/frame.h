/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The frame in which the examples of the reference run (dat-sys/reference). Each program of this
 * directory has the name of a page, and calls the functions of the page's example. The frame opens
 * two ends in one process before that, and closes them afterwards.
 */

#ifndef FRAME_H
#define FRAME_H

#ifdef UDAPL_1_2
#include <dat/udat.h>
#else
#include <dat2/udat.h>
#endif

/* The example as the page shows it. It includes the further headers that it needs. */
#include "example.h"

#include "../dat_test.h"

#include <pthread.h>
#include <sched.h>

enum { FRAME_SIZE = 65536, FRAME_DTOS = 16 };

static struct end here, there;

/* Calls the example. Each program defines this function. */
static void use_example(void);

int main(void)
{
    end_open(&here, FRAME_SIZE, FRAME_DTOS);
    end_open(&there, FRAME_SIZE, FRAME_DTOS);
    use_example();
    OK(dat_ia_close(here.ia, DAT_CLOSE_ABRUPT_FLAG));
    OK(dat_ia_close(there.ia, DAT_CLOSE_ABRUPT_FLAG));
    puts("ok");
    return 0;
}

/* Creates an EVD for these streams. */
static inline DAT_EVD_HANDLE new_evd(const struct end *end, int streams, DAT_CNO_HANDLE cno)
{
    DAT_EVD_HANDLE evd;
    OK(dat_evd_create(end->ia, 2 * FRAME_DTOS, cno, (DAT_EVD_FLAGS)streams, &evd));
    return evd;
}

/* Creates an unconnected EP whose completions and connection events go to these EVDs. */
static inline DAT_EP_HANDLE new_ep(const struct end *end, DAT_EVD_HANDLE recv,
                                   DAT_EVD_HANDLE request, DAT_EVD_HANDLE connect)
{
    DAT_EP_ATTR attr = ep_attributes(FRAME_DTOS);
    DAT_EP_HANDLE ep;
    OK(dat_ep_create(end->ia, end->pz, recv, request, connect, &attr, &ep));
    return ep;
}

/* Puts a new EP with these EVDs in the place of an end's EP. */
static inline void replace_ep(struct end *end, DAT_EVD_HANDLE recv, DAT_EVD_HANDLE request,
                              DAT_EVD_HANDLE connect)
{
    OK(dat_ep_free(end->ep));
    end->ep = new_ep(end, recv, request, connect);
    end->recv = recv;
    end->request = request;
    end->connect = connect;
}

/* Listens at `there`. Returns the connection qualifier. */
static inline DAT_CONN_QUAL listen_there(DAT_EVD_HANDLE requests, DAT_PSP_FLAGS flags,
                                         DAT_PSP_HANDLE *psp)
{
    DAT_CONN_QUAL port = free_port();
    OK(dat_psp_create(there.ia, port, requests, flags, psp));
    return port;
}

/* Takes a connection request from the EVD. */
static inline DAT_CR_HANDLE request_on(DAT_EVD_HANDLE requests)
{
    DAT_EVENT event = wait_event(requests);
    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "no request: event 0x%x",
           event.event_number);
    return event.event_data.cr_arrival_event_data.cr_handle;
}

/* Requests a connection from `here`. Returns the request that has arrived at `there`. */
static inline DAT_CR_HANDLE request_from_here(void)
{
    DAT_PSP_HANDLE psp;
    start_connect(here.ep, listen_there(there.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    return request_on(there.cr);
}

/* Connects the two ends. */
static inline void connect_ends(void)
{
    OK(dat_cr_accept(request_from_here(), there.ep, 0, NULL));
    wait_established(there.connect);
    wait_established(here.connect);
}

static inline void *accept_one_request(void *unused)
{
    (void)unused;
    accept_next(there.cr, there.ep, there.connect);
    return NULL;
}

/* Connects from `here` until the result is `expected`: the peer may not listen yet. */
static inline void *connect_until(DAT_CONN_QUAL port, DAT_EVENT_NUMBER expected)
{
    for (;;) {
        DAT_EVENT event;
        start_connect(here.ep, port);
        event = wait_event(here.connect);
        if (event.event_number == expected)
            return NULL;
        EXPECT(event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED, "event 0x%x",
               event.event_number);
        OK(dat_ep_reset(here.ep));
    }
}

/* Starts a thread that does something at the other end, while the example waits. */
static inline pthread_t start(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, function, argument) == 0, "no thread");
    return thread;
}

static inline void finish(pthread_t thread)
{
    EXPECT(pthread_join(thread, NULL) == 0, "the thread cannot be joined");
}

/* Takes an event, which must be a successful completion. */
static inline DAT_EVENT completed(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event = wait_event(evd);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "status %d",
           event.event_data.dto_completion_event_data.status);
    return event;
}

/* Posts a receive of 64 octets at the start of an end's buffer. */
static inline void expect_message(struct end *end)
{
    post_receives(end, 1, 64);
}

/* Sends a message of 64 octets from `from`, and waits until the send has completed. */
static inline void send_message(struct end *from)
{
    DAT_LMR_TRIPLET segment = local_segment(from, 0, 64);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    OK(dat_ep_post_send(from->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    completed(from->request);
}

/* The segment of an end's buffer as its peer names it. */
static inline DAT_RMR_TRIPLET remote_part(const struct end *end, size_t offset, size_t length)
{
    struct introduction peer = {0, (DAT_VADDR)(uintptr_t)end->buffer, end->rmr_context};
    return remote_segment(&peer, offset, length);
}

/* Posts a software event to the EVD. */
static inline void post_software_event(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event = {.event_number = DAT_SOFTWARE_EVENT};
    OK(dat_evd_post_se(evd, &event));
}

/* Creates an SRQ at `here` for `buffers` buffers of one segment. */
static inline DAT_SRQ_HANDLE new_srq(DAT_COUNT buffers)
{
    DAT_SRQ_ATTR attr = {buffers, 1, DAT_SRQ_LW_DEFAULT};
    DAT_SRQ_HANDLE srq;
    OK(dat_srq_create(here.ia, here.pz, &attr, &srq));
    return srq;
}

/* Puts an EP that uses the SRQ in the place of the EP of `here`. */
static inline void use_srq(DAT_SRQ_HANDLE srq)
{
    DAT_EP_ATTR attr = ep_attributes(FRAME_DTOS);
    attr.max_recv_dtos = 0;
    attr.max_recv_iov = 0;
    attr.srq_soft_hw = DAT_WATERMARK_INFINITE;
    OK(dat_ep_free(here.ep));
    OK(dat_ep_create_with_srq(here.ia, here.pz, here.recv, here.request, here.connect, srq, &attr,
                              &here.ep));
}

#endif
