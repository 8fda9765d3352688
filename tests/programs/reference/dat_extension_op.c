/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_LMR_TRIPLET local = local_segment(&here, 0, 8);
    DAT_RMR_TRIPLET remote = remote_part(&there, 0, 8);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_RETURN status;

    connect_ends();
    status = dat_ib_post_fetch_and_add(here.ep, 1, &local, cookie, &remote,
                                       DAT_COMPLETION_DEFAULT_FLAG);
    EXPECT(has_operation(here.ia, DAT_IB_ATTR_FETCH_AND_ADD) == (status == DAT_SUCCESS), "%s",
           status_text(status));
    EXPECT(!has_operation(here.ia, "DAT_IB_NO_SUCH_OPERATION"), "an unknown operation");
}
