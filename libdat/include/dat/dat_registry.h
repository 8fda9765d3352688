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

/*
 * Registers a provider for an adapter name.
 * provider: The function table of the provider, a DAT_PROVIDER. NULL is invalid.
 * provider_info: What the provider offers: the name of the adapter (ia_name, 1 to 255 octets in
 *     UTF-8 with a NUL at the end), the version of uDAPL (dapl_version_major, dapl_version_minor),
 *     and whether the provider is thread-safe (is_thread_safe). NULL is invalid.
 * See dat_registry_add_provider(3dat).
 */
extern DAT_RETURN DAT_API dat_registry_add_provider(
    const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *provider_info);

/*
 * Removes the registration of a provider.
 * provider: The function table that was registered. NULL is invalid.
 * provider_info: The name, version and thread safety with which the function table was registered.
 *     NULL is invalid.
 * See dat_registry_remove_provider(3dat).
 */
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
