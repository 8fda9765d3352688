/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A vendor's provider of uDAPL 1.2 and its consumer in one source. If VENDOR is defined, the source
 * is the loadable provider, which can open, query and close an adapter and create one kind of
 * object. Otherwise the source is the consumer's program.
 */

#include <dat/dat_registry.h>
#include <dat/udat.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef VENDOR

/*
 * The provider's table ends with the last member of 1.2. If a registry reads further, it reads the
 * poison.
 */
static struct {
    DAT_PROVIDER table;
    char poison[88];
} vendor;

/* Every object begins with a pointer to its provider's table. */
struct object {
    const DAT_PROVIDER *provider;
    DAT_HANDLE_TYPE type;
} adapter = {&vendor.table, DAT_HANDLE_TYPE_IA}, evd = {&vendor.table, DAT_HANDLE_TYPE_EVD};

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async_evd,
                          DAT_IA_HANDLE *ia)
{
    if (strcmp(name, vendor.table.device_name) || qlen != 8)
        return 0x80060024;
    *async_evd = &evd;
    *ia = &adapter;
    return DAT_SUCCESS;
}

static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK mask,
                           DAT_IA_ATTR *attr, DAT_PROVIDER_ATTR_MASK provider_mask,
                           DAT_PROVIDER_ATTR *provider_attr)
{
    (void)async_evd;
    /* A registry that passes masks of 2.0 has not understood which version the provider has. */
    if (ia != &adapter || (mask & ~DAT_IA_FIELD_ALL) || (provider_mask & ~DAT_PROVIDER_FIELD_ALL))
        abort();
    memset(attr, 0x5a, sizeof *attr);
    attr->max_rdma_size = (DAT_VLEN)1 << 40;
    memset(provider_attr, 0x5a, sizeof *provider_attr);
    provider_attr->dapl_version_major = 1;
    return DAT_SUCCESS;
}

static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    (void)flags;
    return ia == &adapter ? DAT_SUCCESS : 0x8005000b;
}

static DAT_RETURN evd_dequeue(DAT_EVD_HANDLE handle, DAT_EVENT *event)
{
    memset(event, 0x5a, sizeof *event);
    event->evd_handle = handle;
    return DAT_SUCCESS;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
    memset(vendor.poison, 0x5a, sizeof vendor.poison);
    vendor.table.device_name = params;
    vendor.table.ia_open_func = ia_open;
    vendor.table.ia_query_func = ia_query;
    vendor.table.ia_close_func = ia_close;
    vendor.table.evd_dequeue_func = evd_dequeue;
    if (info->dapl_version_major == 1 && info->dapl_version_minor == 2)
        dat_registry_add_provider(&vendor.table, info);
    /* A second registration returns the status that 1.2 defines for it. */
    if (dat_registry_add_provider(&vendor.table, NULL) != 0x80060025)
        abort();
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    dat_registry_remove_provider(&vendor.table, info);
}

#else

#define OK(condition)                                                           \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);     \
            return 1;                                                           \
        }                                                                       \
    } while (0)

int main(void)
{
    char name[] = "vendor";
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider_attr;
    /* The provider writes an event of 48 octets, and nothing may write more. */
    struct {
        DAT_EVENT event;
        char after[sizeof(DAT_UINT64) * 9];
    } place;
    size_t i;

    OK(dat_ia_open(name, 8, &async_evd, &ia) == DAT_SUCCESS && (size_t)ia == 1);
    OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider_attr) ==
       DAT_SUCCESS);
    OK(attr.max_rdma_size == (DAT_VLEN)1 << 40 && provider_attr.dapl_version_major == 1);
    memset(&place, 0, sizeof place);
    OK(dat_evd_dequeue(async_evd, &place.event) == DAT_SUCCESS &&
       place.event.evd_handle == async_evd);
    for (i = 0; i < sizeof place.after; i++)
        OK(place.after[i] == 0);
    /* The provider does not have this function. */
    OK(dat_pz_create(ia, &pz) == 0xffff0000);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG) == DAT_SUCCESS);
    puts("ok");
    return 0;
}

#endif
