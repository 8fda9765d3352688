/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EP_HANDLE second = new_ep(&here, here.recv, here.request, here.connect);
    pthread_t acceptor;

    connect_ends();
    there.ep = new_ep(&there, there.recv, there.request, there.connect);
    acceptor = start(accept_one_request, NULL);
    EXPECT(connect_another(second, here.ep, here.connect) == 0, "not connected");
    finish(acceptor);
}
