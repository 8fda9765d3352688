/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "rmr.h"

static void use_example(void)
{
    DAT_RMR_CONTEXT context;
    DAT_EVENT event;

    with_binds(&there);
    connect_ends();
    context = bind_window(&there, new_rmr(&there), 0, 64);
    expect_message(&there);
    OK(give_back(here.ep, local_segment(&here, 0, 64), context));
    completed(here.request);
    event = completed(there.recv);
    EXPECT(is_given_back(&event, context), "the context is still valid");
}
