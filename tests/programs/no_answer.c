/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Connection attempts that get no answer. Each attempt reports its cause. Afterwards the endpoint
 * can be used for another attempt, also for one that is answered.
 *
 *   no_answer NOBODY NOWHERE   NOBODY is an address of this network that no host has; to the
 *                              address NOWHERE there is no route
 */

#include "dat_test.h"

enum { SIZE = 4096, DTOS = 4 };

static struct end self;

/* Connects to this address and expects this event. Returns how long that took, in seconds. */
static double connect_in_vain(const char *what, const char *address, DAT_CONN_QUAL port,
                              DAT_TIMEOUT timeout, DAT_EVENT_NUMBER expected)
{
    struct sockaddr_storage to;
    double started = now(), seconds;
    DAT_BOOLEAN recv_idle, request_idle;
    DAT_EP_STATE state;
    DAT_EVENT event;

    if (address != NULL)
        setenv("OPENDAT_TEST_ADDRESS", address, 1);
    to = peer_address();
    OK(dat_ep_connect(self.ep, (DAT_IA_ADDRESS_PTR)&to, port, timeout, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    event = wait_event(self.connect);
    seconds = now() - started;
    EXPECT(event.event_number == expected, "%s: event 0x%x after %.3f s", what, event.event_number,
           seconds);
    EXPECT(event.event_data.connect_event_data.ep_handle == self.ep,
           "%s: the event is for another endpoint", what);
    OK(dat_ep_get_status(self.ep, &state, &recv_idle, &request_idle));
    EXPECT(state == DAT_EP_STATE_DISCONNECTED, "%s: state %d", what, state);
    OK(dat_ep_reset(self.ep));
    printf("%s: %.3f s\n", what, seconds);
    return seconds;
}

int main(int argc, char **argv)
{
    char *own = getenv("OPENDAT_TEST_ADDRESS");
    DAT_CONN_QUAL port = free_port();
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    struct end other;
    double seconds;

    EXPECT(argc == 3 && own != NULL, "usage: OPENDAT_TEST_ADDRESS=OWN no_answer NOBODY NOWHERE");
    own = strdup(own);
    end_open(&self, SIZE, DTOS);
    end_open(&other, SIZE, DTOS);

    connect_in_vain("no service", NULL, port, WAIT_LIMIT, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    connect_in_vain("no route", argv[2], port, WAIT_LIMIT, DAT_CONNECTION_EVENT_UNREACHABLE);
    connect_in_vain("no host", argv[1], port, WAIT_LIMIT, DAT_CONNECTION_EVENT_UNREACHABLE);
    seconds = connect_in_vain("no host, short timeout", argv[1], port, SECOND / 5,
                              DAT_CONNECTION_EVENT_TIMED_OUT);
    /*
     * The event shows that the timeout of the call ended the attempt: a longer timeout leads to
     * another event. The timeout must not expire early.
     */
    EXPECT(seconds >= 0.2, "timed out after %.3f s", seconds);

    /* A service exists on this port, but its consumer does not answer the request. */
    OK(dat_psp_create(other.ia, port, other.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    seconds =
        connect_in_vain("silent consumer", own, port, SECOND / 2, DAT_CONNECTION_EVENT_TIMED_OUT);
    EXPECT(seconds >= 0.5, "timed out after %.3f s", seconds);
    event = wait_event(other.cr);
    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "event 0x%x", event.event_number);
    OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));

    start_connect(self.ep, port);
    accept_next(other.cr, other.ep, other.connect);
    wait_established(self.connect);
    OK(dat_ep_disconnect(self.ep, DAT_CLOSE_GRACEFUL_FLAG));
    event = wait_event(self.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
    event = wait_event(other.connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED, "event 0x%x",
           event.event_number);
    OK(dat_psp_free(psp));
    end_close(&self);
    end_close(&other);
    free(own);
    puts("ok");
    return 0;
}
