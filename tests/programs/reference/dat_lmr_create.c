/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    struct buffer buffer;

    EXPECT(create_buffer(here.ia, here.pz, 4096, &buffer) == 0, "no buffer");
    OK(dat_lmr_free(buffer.lmr));
    free(buffer.memory);
}
