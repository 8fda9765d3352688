/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Settings that a program may define before it includes <dat/udat.h>.
 */

#ifndef DAT1_UDAT_CONFIG_H
#define DAT1_UDAT_CONFIG_H

/* Version of the API that dat_ia_open requests. */
#define DAT_VERSION_MAJOR 1
#define DAT_VERSION_MINOR 2

/*
 * Whether dat_ia_open requests a provider that needs no locking by its caller: DAT_TRUE or
 * DAT_FALSE.
 */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

#endif /* DAT1_UDAT_CONFIG_H */
