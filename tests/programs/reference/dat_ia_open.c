/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_IA_HANDLE first, second;
    DAT_EVD_HANDLE async_evd;

    EXPECT(open_adapter(ia_under_test(), &first, &async_evd) == 0, "the adapter does not open");
    EXPECT(open_again(ia_under_test(), async_evd, &second) == 0, "the second open fails");
    OK(dat_ia_close(second, DAT_CLOSE_GRACEFUL_FLAG));
    OK(dat_ia_close(first, DAT_CLOSE_GRACEFUL_FLAG));
}
