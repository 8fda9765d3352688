/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Nothing: room that the standard leaves for vendors. Kept for programs that include it by name.
 */

#ifndef DAT1_DAT_VENDOR_SPECIFIC_H
#define DAT1_DAT_VENDOR_SPECIFIC_H

#endif /* DAT1_DAT_VENDOR_SPECIFIC_H */
