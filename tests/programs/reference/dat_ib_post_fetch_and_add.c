/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "atomics.h"

static void use_example(void)
{
    const volatile DAT_UINT64 *place = (const volatile DAT_UINT64 *)here.buffer;
    DAT_RMR_TRIPLET target = atomic_target();

    connect_ends();
    for (DAT_UINT64 expected = 0; expected < 3; expected++) {
        DAT_UINT64 number;
        EXPECT(next_number(here.ep, here.request, local_segment(&here, 0, 8), place,
                           target, &number) == 0, "the operation failed");
        EXPECT(number == expected, "another number");
    }
}
