/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Status words.
 *
 *     31  30 29                     16 15                      0
 *    | class |          type          |         subtype        |
 *
 * A call succeeded if it returned DAT_SUCCESS. To find out why it failed compare
 * DAT_GET_TYPE(status): some providers leave the class bits of a failure 0.
 */

#ifndef DAT1_DAT_ERROR_H
#define DAT1_DAT_ERROR_H

#include <dat/dat_platform_specific.h>

typedef DAT_UINT32 DAT_RETURN;

#define DAT_CLASS_ERROR   0x80000000
#define DAT_CLASS_WARNING 0x40000000
#define DAT_CLASS_SUCCESS 0x00000000
#define DAT_TYPE_MASK     0x3fff0000
#define DAT_SUBTYPE_MASK  0x0000ffff

#define DAT_IS_WARNING(status)  ((DAT_UINT32)(status) & DAT_CLASS_WARNING)
#define DAT_GET_TYPE(status)    ((DAT_UINT32)(status) & DAT_TYPE_MASK)
#define DAT_GET_SUBTYPE(status) ((DAT_UINT32)(status) & DAT_SUBTYPE_MASK)

/* The type of a status, bits 29 to 16 of a DAT_RETURN. */
typedef enum dat_return_type {
    DAT_SUCCESS                     = 0x00000000,
    DAT_ABORT                       = 0x00010000,
    DAT_CONN_QUAL_IN_USE            = 0x00020000,
    DAT_INSUFFICIENT_RESOURCES      = 0x00030000,
    DAT_INTERNAL_ERROR              = 0x00040000,
    DAT_INVALID_HANDLE              = 0x00050000,
    DAT_INVALID_PARAMETER           = 0x00060000,
    DAT_INVALID_STATE               = 0x00070000,
    DAT_LENGTH_ERROR                = 0x00080000,
    DAT_MODEL_NOT_SUPPORTED         = 0x00090000,
    DAT_PROVIDER_NOT_FOUND          = 0x000a0000,
    DAT_PRIVILEGES_VIOLATION        = 0x000b0000,
    DAT_PROTECTION_VIOLATION        = 0x000c0000,
    DAT_QUEUE_EMPTY                 = 0x000d0000,
    DAT_QUEUE_FULL                  = 0x000e0000,
    DAT_TIMEOUT_EXPIRED             = 0x000f0000,
    DAT_PROVIDER_ALREADY_REGISTERED = 0x00100000,
    DAT_PROVIDER_IN_USE             = 0x00110000,
    DAT_INVALID_ADDRESS             = 0x00120000,
    DAT_INTERRUPTED_CALL            = 0x00130000,
    DAT_CONN_QUAL_UNAVAILABLE       = 0x00140000
} DAT_RETURN_TYPE;

/*
 * Not an enumerator, because ISO C requires enumerators to fit an int. It includes the class bits,
 * so compare it with a whole status.
 */
#define DAT_NOT_IMPLEMENTED 0xffff0000u
#define DAT_NAME_NOT_FOUND DAT_PROVIDER_NOT_FOUND

/* The subtype of a status, bits 15 to 0 of a DAT_RETURN; each belongs to one type. */
typedef enum dat_return_subtype {
    DAT_NO_SUBTYPE                         = 0,
    DAT_SUB_INTERRUPTED                    = 1,
    DAT_RESOURCE_MEMORY                    = 2,
    DAT_RESOURCE_DEVICE                    = 3,
    DAT_RESOURCE_TEP                       = 4,
    DAT_RESOURCE_TEVD                      = 5,
    DAT_RESOURCE_PROTECTION_DOMAIN         = 6,
    DAT_RESOURCE_MEMORY_REGION             = 7,
    DAT_RESOURCE_ERROR_HANDLER             = 8,
    DAT_RESOURCE_CREDITS                   = 9,
    DAT_RESOURCE_SRQ                       = 10,
    DAT_INVALID_HANDLE_IA                  = 11,
    DAT_INVALID_HANDLE_EP                  = 12,
    DAT_INVALID_HANDLE_LMR                 = 13,
    DAT_INVALID_HANDLE_RMR                 = 14,
    DAT_INVALID_HANDLE_PZ                  = 15,
    DAT_INVALID_HANDLE_PSP                 = 16,
    DAT_INVALID_HANDLE_RSP                 = 17,
    DAT_INVALID_HANDLE_CR                  = 18,
    DAT_INVALID_HANDLE_CNO                 = 19,
    DAT_INVALID_HANDLE_EVD_CR              = 20,
    DAT_INVALID_HANDLE_EVD_REQUEST         = 21,
    DAT_INVALID_HANDLE_EVD_RECV            = 22,
    DAT_INVALID_HANDLE_EVD_CONN            = 23,
    DAT_INVALID_HANDLE_EVD_ASYNC           = 24,
    DAT_INVALID_HANDLE_SRQ                 = 25,
    DAT_INVALID_HANDLE1                    = 26,
    DAT_INVALID_HANDLE2                    = 27,
    DAT_INVALID_HANDLE3                    = 28,
    DAT_INVALID_HANDLE4                    = 29,
    DAT_INVALID_HANDLE5                    = 30,
    DAT_INVALID_HANDLE6                    = 31,
    DAT_INVALID_HANDLE7                    = 32,
    DAT_INVALID_HANDLE8                    = 33,
    DAT_INVALID_HANDLE9                    = 34,
    DAT_INVALID_HANDLE10                   = 35,
    DAT_INVALID_ARG1                       = 36,
    DAT_INVALID_ARG2                       = 37,
    DAT_INVALID_ARG3                       = 38,
    DAT_INVALID_ARG4                       = 39,
    DAT_INVALID_ARG5                       = 40,
    DAT_INVALID_ARG6                       = 41,
    DAT_INVALID_ARG7                       = 42,
    DAT_INVALID_ARG8                       = 43,
    DAT_INVALID_ARG9                       = 44,
    DAT_INVALID_ARG10                      = 45,
    DAT_INVALID_STATE_EP_UNCONNECTED       = 46,
    DAT_INVALID_STATE_EP_ACTCONNPENDING    = 47,
    DAT_INVALID_STATE_EP_PASSCONNPENDING   = 48,
    DAT_INVALID_STATE_EP_TENTCONNPENDING   = 49,
    DAT_INVALID_STATE_EP_CONNECTED         = 50,
    DAT_INVALID_STATE_EP_DISCONNECTED      = 51,
    DAT_INVALID_STATE_EP_RESERVED          = 52,
    DAT_INVALID_STATE_EP_COMPLPENDING      = 53,
    DAT_INVALID_STATE_EP_DISCPENDING       = 54,
    DAT_INVALID_STATE_EP_PROVIDERCONTROL   = 55,
    DAT_INVALID_STATE_EP_NOTREADY          = 56,
    DAT_INVALID_STATE_EP_RECV_WATERMARK    = 57,
    DAT_INVALID_STATE_EP_PZ                = 58,
    DAT_INVALID_STATE_EP_EVD_REQUEST       = 59,
    DAT_INVALID_STATE_EP_EVD_RECV          = 60,
    DAT_INVALID_STATE_EP_EVD_CONNECT       = 61,
    DAT_INVALID_STATE_EP_UNCONFIGURED      = 62,
    DAT_INVALID_STATE_EP_UNCONFRESERVED    = 63,
    DAT_INVALID_STATE_EP_UNCONFPASSIVE     = 64,
    DAT_INVALID_STATE_EP_UNCONFTENTATIVE   = 65,
    DAT_INVALID_STATE_CNO_IN_USE           = 66,
    DAT_INVALID_STATE_CNO_DEAD             = 67,
    DAT_INVALID_STATE_EVD_OPEN             = 68,
    DAT_INVALID_STATE_EVD_ENABLED          = 69,
    DAT_INVALID_STATE_EVD_DISABLED         = 70,
    DAT_INVALID_STATE_EVD_WAITABLE         = 71,
    DAT_INVALID_STATE_EVD_UNWAITABLE       = 72,
    DAT_INVALID_STATE_EVD_IN_USE           = 73,
    DAT_INVALID_STATE_EVD_CONFIG_NOTIFY    = 74,
    DAT_INVALID_STATE_EVD_CONFIG_SOLICITED = 75,
    DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD = 76,
    DAT_INVALID_STATE_EVD_WAITER           = 77,
    DAT_INVALID_STATE_EVD_ASYNC            = 78,
    DAT_INVALID_STATE_IA_IN_USE            = 79,
    DAT_INVALID_STATE_LMR_IN_USE           = 80,
    DAT_INVALID_STATE_LMR_FREE             = 81,
    DAT_INVALID_STATE_PZ_IN_USE            = 82,
    DAT_INVALID_STATE_PZ_FREE              = 83,
    DAT_INVALID_STATE_SRQ_OPERATIONAL      = 84,
    DAT_INVALID_STATE_SRQ_ERROR            = 85,
    DAT_INVALID_STATE_SRQ_IN_USE           = 86,
    DAT_PRIVILEGES_READ                    = 87,
    DAT_PRIVILEGES_WRITE                   = 88,
    DAT_PRIVILEGES_RDMA_READ               = 89,
    DAT_PRIVILEGES_RDMA_WRITE              = 90,
    DAT_PROTECTION_READ                    = 91,
    DAT_PROTECTION_WRITE                   = 92,
    DAT_PROTECTION_RDMA_READ               = 93,
    DAT_PROTECTION_RDMA_WRITE              = 94,
    DAT_INVALID_ADDRESS_UNSUPPORTED        = 95,
    DAT_INVALID_ADDRESS_UNREACHABLE        = 96,
    DAT_INVALID_ADDRESS_MALFORMED          = 97,
    DAT_NAME_NOT_REGISTERED                = 98,
    DAT_MAJOR_NOT_FOUND                    = 99,
    DAT_MINOR_NOT_FOUND                    = 100,
    DAT_THREAD_SAFETY_NOT_FOUND            = 101
} DAT_RETURN_SUBTYPE;

#endif /* DAT1_DAT_ERROR_H */
