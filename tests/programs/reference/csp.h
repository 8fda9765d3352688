/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A common service point at the other end. */

#ifndef CSP_H
#define CSP_H

#include <netinet/in.h>

/* Creates a CSP of `there` on a free port of the loopback address. */
static inline DAT_CSP_HANDLE new_csp(DAT_EVD_HANDLE requests)
{
    DAT_COMM tcp = {.domain = AF_INET, .type = SOCK_STREAM, .protocol = 0};
    struct sockaddr_in address = {.sin_family = AF_INET};
    DAT_CSP_HANDLE csp;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    OK(dat_csp_create(there.ia, &tcp, (DAT_IA_ADDRESS_PTR)&address, requests, &csp));
    return csp;
}

/* The CSP's port in host byte order. */
static inline unsigned short csp_port(DAT_CSP_HANDLE csp)
{
    DAT_CSP_PARAM param;
    OK(dat_csp_query(csp, DAT_CSP_FIELD_IA_ADDRESS, &param));
    return ntohs(((struct sockaddr_in *)param.address_ptr)->sin_port);
}

static inline void connect_to_csp(DAT_EP_HANDLE ep, DAT_CSP_HANDLE csp)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(csp_port(csp))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    OK(dat_ep_common_connect(ep, (DAT_IA_ADDRESS_PTR)&address, WAIT_LIMIT, 0, NULL));
}

#endif
