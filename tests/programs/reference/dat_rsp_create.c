/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static DAT_CONN_QUAL qualifier;

static void *connect_until_accepted(void *unused)
{
    (void)unused;
    return connect_until(qualifier, DAT_CONNECTION_EVENT_ESTABLISHED);
}

static void use_example(void)
{
    pthread_t caller;

    qualifier = free_port();
    caller = start(connect_until_accepted, NULL);
    EXPECT(accept_one(there.ia, qualifier, there.ep, there.cr) == 0, "no request was accepted");
    finish(caller);
    wait_established(there.connect);
}
