/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "atomics.h"

static void use_example(void)
{
    const volatile DAT_UINT64 *place = (const volatile DAT_UINT64 *)here.buffer;
    DAT_RMR_TRIPLET target = atomic_target();

    connect_ends();
    for (int expected = 1; expected >= 0; expected--) {
        int taken = try_lock(here.ep, here.request, local_segment(&here, 0, 8), place,
                             target, 5);
        EXPECT(taken == expected, "%d instead of %d", taken, expected);
    }
}
