/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "rmr.h"

static void use_example(void)
{
    DAT_LMR_TRIPLET part = local_segment(&there, 64, 64);
    DAT_RMR_HANDLE rmr = new_rmr(&there);
    DAT_RMR_TRIPLET where;

    with_binds(&there);
    connect_ends();
    expect_message(&here);
    OK(invite(rmr, there.lmr, part, there.ep, local_segment(&there, 0, 64), &where));
    bound(&there);
    completed(there.request);
    completed(here.recv);
    strcpy(here.buffer + 64, "of here");
    OK(dat_ep_post_rdma_write(here.ep, 1, (DAT_LMR_TRIPLET[]){local_segment(&here, 64, 64)},
                              (DAT_DTO_COOKIE){.as_64 = 1}, &where, DAT_COMPLETION_DEFAULT_FLAG));
    completed(here.request);
    expect_message(&there);
    send_message(&here);
    completed(there.recv);
    EXPECT(strcmp(there.buffer + 64, "of here") == 0, "the data are wrong");
    OK(end_access(rmr, there.ep));
    bound(&there);
}
