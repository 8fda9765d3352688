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
 * Sends a datagram with 32 bits of immediate data to a peer.
 * ep: An endpoint (EP) with DAT_IB_SERVICE_TYPE_UD. DAT_HANDLE_NULL is invalid.
 * segments: The number of local segments, from 0 to max_request_iov.
 * iov: The local segments, in the order of the message. NULL is allowed if segments is 0.
 * ah: The address of the peer, from an event (see dat_datagrams), or a copy of it. NULL is invalid.
 * cookie: A DAT_DTO_COOKIE, 64 bits that the event returns unchanged.
 * immediate: The immediate data, a 32-bit number in the byte order of the host.
 * flags: A mask of completion flags.
 * See dat_opendat_post_send_ud_immed(3dat).
 */
#define dat_opendat_post_send_ud_immed(ep, segments, iov, ah, cookie, immediate, flags) \
    dat_extension_op((DAT_HANDLE)(ep), DAT_OPENDAT_POST_SEND_UD_IMMED_OP, \
        (DAT_COUNT)(segments), (DAT_LMR_TRIPLET *)(iov), (void *)(ah), (cookie), \
        (DAT_UINT32)(immediate), (DAT_COMPLETION_FLAGS)(flags))

#endif /* DAT2_DAT_VENDOR_SPECIFIC_H */
