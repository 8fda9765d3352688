/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "datagrams.h"

static void use_example(void)
{
    DAT_IB_ADDR_HANDLE copy;

    if (!introduce_new())
        return;
    copy = to_answering;
    OK(forget_peer(asking, &to_answering));
    EXPECT(to_answering.ah == NULL, "the address is left");
    EXPECT(forget_peer(asking, &copy) != DAT_SUCCESS, "the handle was not freed");
}
