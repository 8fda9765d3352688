/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Empty. The standard reserves it for vendors; it exists for programs that include it by name.
 */

#ifndef DAT2_UDAT_VENDOR_SPECIFIC_H
#define DAT2_UDAT_VENDOR_SPECIFIC_H

#include <dat2/dat_vendor_specific.h>

#endif /* DAT2_UDAT_VENDOR_SPECIFIC_H */
