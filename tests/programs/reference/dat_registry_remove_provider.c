/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

const DAT_PROVIDER table = {.device_name = "example"};

static void use_example(void)
{
    DAT_PROVIDER_INFO info = {"example", DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_TRUE};

    OK(dat_registry_add_provider(&table, &info));
    dat_provider_fini(&info);
    EXPECT(dat_registry_remove_provider(&table, &info) != DAT_SUCCESS, "still registered");
}
