/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    DAT_PROVIDER_INFO info = {"example", DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_TRUE};

    dat_provider_init(&info, "");
    /* A name can be registered once. */
    EXPECT(dat_registry_add_provider(&table, &info) != DAT_SUCCESS, "registered twice");
    OK(dat_registry_remove_provider(&table, &info));
}
