/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_LMR_TRIPLET record = local_segment(&here, 0, 16), message = local_segment(&here, 64, 8);

    connect_ends();
    expect_message(&there);
    EXPECT(publish(here.ia, here.ep, here.buffer, "a record of ours", &record, &message,
                   DAT_TRUE) == 0, "not published");
    completed(here.request);
    completed(there.recv);
    EXPECT(memcmp(here.buffer, "a record of ours", 16) == 0, "the data are wrong");
}
