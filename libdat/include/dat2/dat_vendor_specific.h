/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * What OpenDAT adds to the standard. udat.h includes this file.
 */

#ifndef DAT2_DAT_VENDOR_SPECIFIC_H
#define DAT2_DAT_VENDOR_SPECIFIC_H

/* Operation of dat_extension_op. */
#define DAT_OPENDAT_EP_LAST_CAUSE_OP 0x4000

/*
 * Says in a sentence why a connection has ended or an operation has failed.
 * ep_handle: An endpoint (EP). DAT_HANDLE_NULL is invalid.
 * buffer: The place for the sentence, which is a C string in UTF-8. NULL is invalid.
 * size: The size of buffer in octets, with the NUL at the end.
 * See dat_opendat_ep_last_cause(3dat).
 */
#define dat_opendat_ep_last_cause(ep_handle, buffer, size) \
    dat_extension_op((DAT_HANDLE)(ep_handle), DAT_OPENDAT_EP_LAST_CAUSE_OP, \
        (char *)(buffer), (DAT_COUNT)(size))

#endif /* DAT2_DAT_VENDOR_SPECIFIC_H */
