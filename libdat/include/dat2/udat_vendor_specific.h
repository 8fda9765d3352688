/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Nothing: room that the standard leaves for vendors. Kept for programs that include it by name.
 */

#ifndef DAT2_UDAT_VENDOR_SPECIFIC_H
#define DAT2_UDAT_VENDOR_SPECIFIC_H

#include <dat2/dat_vendor_specific.h>

#endif /* DAT2_UDAT_VENDOR_SPECIFIC_H */
