/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * The interface between the registry and its providers.
 */

#ifndef DAT1_DAT_REGISTRY_H
#define DAT1_DAT_REGISTRY_H

#include <dat/dat_redirection.h>
#include <dat/udat.h>
#include <dat/udat_redirection.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A provider calls these to register and to unregister. */
extern DAT_RETURN DAT_API dat_registry_add_provider(
    const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *provider_info);

extern DAT_RETURN DAT_API dat_registry_remove_provider(
    const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *provider_info);

/* Returns the provider's IA handle for the consumer's. */
extern DAT_RETURN DAT_API dats_get_ia_handle(DAT_IA_HANDLE handle, DAT_IA_HANDLE *ia_handle);

/*
 * Functions that a loadable provider exports. instance_data is the ia_params field of its registry
 * entry.
 */
typedef void (DAT_API *DAT_PROVIDER_INIT_FUNC)(const DAT_PROVIDER_INFO *provider_info, const char *instance_data);
typedef void (DAT_API *DAT_PROVIDER_FINI_FUNC)(const DAT_PROVIDER_INFO *provider_info);

#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR  "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR  "dat_provider_fini"

#ifdef __cplusplus
}
#endif

#endif /* DAT1_DAT_REGISTRY_H */
