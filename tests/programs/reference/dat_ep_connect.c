/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL port = listen_there(there.cr, DAT_PSP_CONSUMER_FLAG, &psp);
    pthread_t acceptor = start(accept_one_request, NULL);

    EXPECT(connect_and_wait(here.ep, here.connect, "127.0.0.1", port) == 0, "not connected");
    finish(acceptor);
}
