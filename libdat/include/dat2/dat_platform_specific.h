/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Scalar types and socket addresses of the platform: Linux and other systems with POSIX sockets.
 */

#ifndef DAT2_DAT_PLATFORM_SPECIFIC_H
#define DAT2_DAT_PLATFORM_SPECIFIC_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef uint32_t DAT_UINT32;
typedef uint64_t DAT_UINT64;
typedef unsigned long long DAT_UVERYLONG; /* 64 bits */
typedef void *DAT_PVOID;
typedef int DAT_COUNT;        /* signed, so that a bad count is recognisable */
typedef DAT_UINT64 DAT_PADDR; /* physical address */
typedef int DAT_FD;           /* file descriptor */

#ifndef UINT64_C
#define UINT64_C(c) c##ULL
#endif

/* The three arguments of socket(2), for a common service point. */
typedef struct dat_comm {
    int domain;
    int type;
    int protocol;
} DAT_COMM;

/*
 * An IA address is a socket address; the family at its start determines its length. The second
 * needs <netinet/in.h>.
 */
typedef struct sockaddr DAT_SOCK_ADDR;
typedef struct sockaddr_in6 DAT_SOCK_ADDR6;
#define DAT_AF_INET  AF_INET
#define DAT_AF_INET6 AF_INET6

/* Buffer alignment in bytes with the best performance. */
#ifndef DAT_OPTIMAL_ALIGNMENT
#define DAT_OPTIMAL_ALIGNMENT 256
#endif

/* An IA handle as an integer and back. */
#define DAT_IA_HANDLE_TO_UL(handle) ((unsigned long)(handle))
#define DAT_UL_TO_IA_HANDLE(number) ((DAT_IA_HANDLE)(number))

/*
 * Contexts, addresses and lengths of triplets in a byte order of the consumer's choice, for
 * messages that carry them: least or most significant byte first.
 */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define DAT_ORDER_LSB(bits, value) (value)
#define DAT_ORDER_MSB(bits, value) __builtin_bswap##bits(value)
#else
#define DAT_ORDER_LSB(bits, value) __builtin_bswap##bits(value)
#define DAT_ORDER_MSB(bits, value) (value)
#endif
#define DAT_LMRC_TO_LSB(lmrc)   DAT_ORDER_LSB(32, lmrc)
#define DAT_LMRC_TO_MSB(lmrc)   DAT_ORDER_MSB(32, lmrc)
#define DAT_RMRC_TO_LSB(rmrc)   DAT_ORDER_LSB(32, rmrc)
#define DAT_RMRC_TO_MSB(rmrc)   DAT_ORDER_MSB(32, rmrc)
#define DAT_VADDR_TO_LSB(vaddr) DAT_ORDER_LSB(64, vaddr)
#define DAT_VADDR_TO_MSB(vaddr) DAT_ORDER_MSB(64, vaddr)
#define DAT_VLEN_TO_LSB(vlen)   DAT_ORDER_LSB(64, vlen)
#define DAT_VLEN_TO_MSB(vlen)   DAT_ORDER_MSB(64, vlen)

/* Calling convention and linkage. */
#define DAT_API
#define DAT_EXPORT extern

/* Direction of an argument, for the reader. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef INOUT
#define INOUT
#endif

#endif /* DAT2_DAT_PLATFORM_SPECIFIC_H */
