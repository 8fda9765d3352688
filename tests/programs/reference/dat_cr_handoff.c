/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static DAT_CONN_QUAL base;
static int result = -2;

static void *distribute_all(void *unused)
{
    (void)unused;
    result = distribute(there.cr, base, 1);
    return NULL;
}

static void use_example(void)
{
    DAT_EVD_HANDLE requests = new_evd(&there, DAT_EVD_CR_FLAG, DAT_HANDLE_NULL);
    DAT_PSP_HANDLE point, public;
    pthread_t distributor;

    base = listen_there(requests, DAT_PSP_CONSUMER_FLAG, &point);
    start_connect(here.ep, listen_there(there.cr, DAT_PSP_CONSUMER_FLAG, &public));
    distributor = start(distribute_all, NULL);
    accept_next(requests, there.ep, there.connect);
    wait_established(here.connect);
    OK(dat_evd_set_unwaitable(there.cr));
    finish(distributor);
    EXPECT(result == 0, "the thread ended with %d", result);
}
