/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "datagrams.h"

static void use_example(void)
{
    const DAT_IB_EXTENSION_EVENT_DATA *data =
        (const DAT_IB_EXTENSION_EVENT_DATA *)resolved.event_extension_data;
    char text[64];

    if (!introduce_new())
        return;
    EXPECT(take_private_data(&resolved, text, sizeof text) >= 7, "too few octets");
    EXPECT(strcmp(text, "answer") == 0, "%s", text);
    EXPECT(dat_ib_ud_cm_free(asking, data->context) != DAT_SUCCESS, "the data were not freed");
}
