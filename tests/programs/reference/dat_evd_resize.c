/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_EVD_PARAM before, after;

    OK(dat_evd_query(here.recv, DAT_EVD_FIELD_EVD_QLEN, &before));
    EXPECT(grow(here.recv, 8) == 0, "not resized");
    OK(dat_evd_query(here.recv, DAT_EVD_FIELD_EVD_QLEN, &after));
    EXPECT(after.evd_qlen >= before.evd_qlen + 8, "%d events", after.evd_qlen);
}
