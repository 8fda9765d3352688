/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Settings that a program may define before it includes <dat2/udat.h>.
 */

#ifndef DAT2_UDAT_CONFIG_H
#define DAT2_UDAT_CONFIG_H

/* Version of the API that dat_ia_open requests. */
#define DAT_VERSION_MAJOR 2
#define DAT_VERSION_MINOR 0

/*
 * Whether dat_ia_open requests a provider that needs no locking by its caller: DAT_TRUE or
 * DAT_FALSE.
 */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

/* The extension interface (dat_extension_op, <dat2/dat_ib_extensions.h>) is always available. */
#ifndef DAT_EXTENSIONS
#define DAT_EXTENSIONS 1
#endif

#endif /* DAT2_UDAT_CONFIG_H */
