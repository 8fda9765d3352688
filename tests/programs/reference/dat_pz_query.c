/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"

static void use_example(void)
{
    EXPECT(belongs_to(here.pz, here.ia), "the PZ belongs to the adapter");
    EXPECT(!belongs_to(here.pz, there.ia), "the PZ belongs to another adapter");
}
