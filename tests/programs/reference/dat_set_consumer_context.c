/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    struct peer *peer = add_peer(here.ep);
    DAT_CONTEXT context;

    EXPECT(peer != NULL, "no record");
    OK(dat_get_consumer_context(here.ep, &context));
    EXPECT(context.as_ptr == peer, "another record");
    free(peer);
}
