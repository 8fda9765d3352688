/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_LMR_TRIPLET segment = local_segment(&here, 0, 16);
    char record[16];

    memcpy(here.buffer, "a record of ours", 16);
    EXPECT(take_record(here.ia, here.buffer, record, &segment) == 0, "not taken");
    EXPECT(memcmp(record, "a record of ours", 16) == 0, "the data are wrong");
}
