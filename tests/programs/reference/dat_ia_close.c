/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    /* The end has objects, so the graceful close fails. */
    EXPECT(close_adapter(here.ia) == 0, "not closed");
    end_open(&here, FRAME_SIZE, FRAME_DTOS);
}
