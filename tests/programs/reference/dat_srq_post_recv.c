/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static int handled;

static void handle_message(DAT_EP_HANDLE ep, char *data, DAT_UINT32 length)
{
    EXPECT(ep == here.ep && data == here.buffer && length == 64, "another message");
    handled++;
}

static void use_example(void)
{
    DAT_SRQ_HANDLE srq = new_srq(8);
    DAT_LMR_TRIPLET buffer = local_segment(&here, 0, 64);

    use_srq(srq);
    OK(dat_srq_post_recv(srq, 1, &buffer, (DAT_DTO_COOKIE){.as_64 = 0}));
    connect_ends();
    for (int sent = 1; sent <= 3; sent++) {
        send_message(&there);
        while (handled < sent) {
            int result = serve_message(here.recv, srq, here.buffer, here.lmr_context, 64,
                                       handle_message);
            EXPECT(result >= 0, "the receive failed");
            sched_yield();
        }
    }
}
