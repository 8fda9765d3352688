/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * The interface between the registry and its providers. Consumers need it only for
 * dat_registry_providers_related.
 */

#ifndef DAT2_DAT_REGISTRY_H
#define DAT2_DAT_REGISTRY_H

#include <dat2/dat_redirection.h>
#include <dat2/udat.h>
#include <dat2/udat_redirection.h>

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

/* Converts between the consumer's IA handle and the provider's. */
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

/* Whether two IAs share a point of failure, dat_registry_providers_related. */
typedef enum dat_ha_relationship {
    DAT_HA_FALSE          = 0,
    DAT_HA_TRUE           = 1,
    DAT_HA_UNKNOWN        = 2,
    DAT_HA_CONFLICTING    = 3,
    DAT_HA_EXTENSION_BASE = 4
} DAT_HA_RELATIONSHIP;

/*
 * Says whether two adapters share a point of failure.
 * ia_name: The name of an adapter, as dat_registry_list_providers returns it: 1 to 255 octets in
 *     UTF-8 with a NUL at the end. NULL is invalid.
 * related_ia_name: The name of another adapter, of the same form.
 * relationship: Output: the answer, one of the values below. NULL is invalid.
 * See dat_registry_providers_related(3dat).
 */
extern DAT_RETURN DAT_API dat_registry_providers_related(
    const DAT_NAME_PTR ia_name, const DAT_NAME_PTR related_ia_name, DAT_HA_RELATIONSHIP *relationship);

#ifdef __cplusplus
}
#endif

#endif /* DAT2_DAT_REGISTRY_H */
