/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * What OpenDAT adds to the standard. udat.h includes this file.
 */

#ifndef DAT2_DAT_VENDOR_SPECIFIC_H
#define DAT2_DAT_VENDOR_SPECIFIC_H

/* Operations of dat_extension_op. */
#define DAT_OPENDAT_EP_LAST_CAUSE_OP 0x4000
#define DAT_OPENDAT_POST_SEND_UD_IMMED_OP 0x4001

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

/*
 * Sends a datagram with immediate data, as dat_ib_post_send_ud (dat_ib_extensions.h) sends one
 * without. The operation of the receiver's event is DAT_IB_DTO_RECV_UD_IMMED.
 * ep_handle: An endpoint (EP) with DAT_IB_SERVICE_TYPE_UD. DAT_HANDLE_NULL is invalid.
 * segments: The number of local segments. It may be 0.
 * local_iov: The local segments. NULL is valid if segments is 0.
 * remote_ah: The DAT_IB_ADDR_HANDLE of the peer. NULL is invalid.
 * cookie: The cookie of the event that reports the completion.
 * immediate: The immediate data.
 * flags: The completion flags of a send.
 */
#define dat_opendat_post_send_ud_immed(ep_handle, segments, local_iov, remote_ah, cookie, \
        immediate, flags) \
    dat_extension_op((DAT_HANDLE)(ep_handle), DAT_OPENDAT_POST_SEND_UD_IMMED_OP, \
        (DAT_COUNT)(segments), (DAT_LMR_TRIPLET *)(local_iov), (void *)(remote_ah), \
        (cookie), (DAT_UINT32)(immediate), (DAT_COMPLETION_FLAGS)(flags))

#endif /* DAT2_DAT_VENDOR_SPECIFIC_H */
