/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    print_and_free(here.ep);
    EXPECT(dat_ep_free(here.ep) != DAT_SUCCESS, "the example has not freed the endpoint");
}
