/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Empty. The standard reserves it for vendors; it exists for programs that include it by name.
 */

#ifndef DAT2_DAT_VENDOR_SPECIFIC_H
#define DAT2_DAT_VENDOR_SPECIFIC_H

#endif /* DAT2_DAT_VENDOR_SPECIFIC_H */
