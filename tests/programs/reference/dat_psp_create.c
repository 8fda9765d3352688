/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static DAT_CONN_QUAL qualifier;

static void *connect_until_rejected(void *unused)
{
    (void)unused;
    return connect_until(qualifier, DAT_CONNECTION_EVENT_PEER_REJECTED);
}

static void use_example(void)
{
    pthread_t caller;

    qualifier = free_port();
    caller = start(connect_until_rejected, NULL);
    EXPECT(listen_once(there.ia, qualifier) == 0, "no request was rejected");
    finish(caller);
}
