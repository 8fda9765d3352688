/* A provider that only logs the calls that it receives.
 *
 * It is written against the C headers, as a vendor's provider would be, and finds the registry's
 * three functions in the global scope. Its IA parameters are words separated by blanks:
 *   log=FILE      append a line for each call to FILE
 *   open=STATUS   return this status from dat_ia_open
 *   close=STATUS  return this status from a graceful dat_ia_close
 *   register=no   do not register in dat_provider_init
 *   keep=yes      do not unregister in dat_provider_fini
 *   extension=yes claim extensions
 *   call=ADDRESS  call the function at this address in dat_provider_init with 1, and in
 *                 dat_provider_fini with 0
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

struct instance {
    DAT_PROVIDER table;
    DAT_PROVIDER_INFO info;
    int used, registered;
    char log[512];
    DAT_RETURN open, close;
    int silent, keep, extension;
    void (*call)(int starts);
};

/* In DAT, every object begins with the address of its provider's table. */
struct object {
    const DAT_PROVIDER *provider;
    struct instance *instance;
    DAT_HANDLE_TYPE type;
    struct object *async_evd; /* the asynchronous EVD that ia_open created */
};

#define INSTANCES 8
static struct instance instances[INSTANCES];

static void log_call(const struct instance *instance, const char *format, ...)
{
    va_list args;
    FILE *log;

    if (!instance->log[0] || !(log = fopen(instance->log, "a")))
        return;
    va_start(args, format);
    vfprintf(log, format, args);
    va_end(args);
    fputc('\n', log);
    fclose(log);
}

static const char *word(const char *params, const char *key, char *value, size_t size)
{
    const char *found = strstr(params, key);
    size_t length;

    if (!found)
        return NULL;
    found += strlen(key);
    length = strcspn(found, " ");
    if (length >= size)
        return NULL;
    memcpy(value, found, length);
    value[length] = '\0';
    return value;
}

static struct object *create_object(struct instance *instance, DAT_HANDLE_TYPE type)
{
    struct object *object = malloc(sizeof *object);

    if (object) {
        object->provider = &instance->table;
        object->instance = instance;
        object->type = type;
        object->async_evd = NULL;
    }
    return object;
}

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async_evd, DAT_IA_HANDLE *ia)
{
    struct object *object;
    int i;

    for (i = 0; i < INSTANCES; i++) {
        struct instance *instance = &instances[i];

        if (!instance->used || strcmp(instance->info.ia_name, name))
            continue;
        log_call(instance, "open %s %d", name, qlen);
        if (instance->open)
            return instance->open;
        object = create_object(instance, DAT_HANDLE_TYPE_IA);
        if (!object)
            return DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES;
        if (*async_evd == DAT_HANDLE_NULL)
            *async_evd = object->async_evd = create_object(instance, DAT_HANDLE_TYPE_EVD);
        *ia = object;
        return DAT_SUCCESS;
    }
    return DAT_CLASS_ERROR | DAT_PROVIDER_NOT_FOUND | DAT_NAME_NOT_REGISTERED;
}

static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK mask, DAT_IA_ATTR *attr,
                           DAT_PROVIDER_ATTR_MASK provider_mask, DAT_PROVIDER_ATTR *provider_attr)
{
    struct object *object = ia;
    DAT_IA_HANDLE integer = NULL;

    (void)async_evd;
    (void)mask;
    if (attr) {
        memset(attr, 0, sizeof *attr);
        strcpy(attr->adapter_name, "fake");
        attr->extension_supported = object->instance->extension ? DAT_EXTENSION_IB : DAT_EXTENSION_NONE;
    }
    if (provider_mask && provider_attr) {
        memset(provider_attr, 0, sizeof *provider_attr);
        provider_attr->dapl_version_major = object->instance->info.dapl_version_major;
        provider_attr->dapl_version_minor = object->instance->info.dapl_version_minor;
        provider_attr->is_thread_safe = object->instance->info.is_thread_safe;
    }
    /* A provider reports the IA's integer handle to consumers, so it must be able to look up that
     * integer. */
    if (dats_get_ia_handle(ia, &integer) == DAT_SUCCESS && (size_t)integer > 4096)
        log_call(object->instance, "the registry gave a pointer for an integer");
    return DAT_SUCCESS;
}

static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    struct object *object = ia;

    log_call(object->instance, "close %d", flags);
    if (object->instance->close && flags == DAT_CLOSE_GRACEFUL_FLAG)
        return object->instance->close;
    object->provider = NULL;
    free(object->async_evd);
    free(object);
    return DAT_SUCCESS;
}

static DAT_RETURN get_handle_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *type)
{
    *type = ((struct object *)handle)->type;
    return DAT_SUCCESS;
}

static DAT_RETURN pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz)
{
    *pz = create_object(((struct object *)ia)->instance, DAT_HANDLE_TYPE_PZ);
    return DAT_SUCCESS;
}

static DAT_RETURN pz_free(DAT_PZ_HANDLE pz)
{
    ((struct object *)pz)->provider = NULL;
    free(pz);
    return DAT_SUCCESS;
}

static DAT_RETURN ia_ha_related(DAT_IA_HANDLE ia, const DAT_NAME_PTR other, DAT_BOOLEAN *answer)
{
    *answer = strcmp(((struct object *)ia)->instance->info.ia_name, other) == 0 ? DAT_TRUE : DAT_FALSE;
    return DAT_SUCCESS;
}

/* The extension function. Operation 7 returns the sum of ten integers, and a double. The operations
 * DAT_OPEN_EXTENSION_BASE and DAT_CLOSE_EXTENSION_BASE create and free an object. */
static DAT_RETURN extendedop(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
    int i;

    if (op == DAT_OPEN_EXTENSION_BASE) {
        DAT_HANDLE *out = va_arg(args, DAT_HANDLE *);

        for (i = 0; i < INSTANCES; i++)
            if (instances[i].used && !strcmp(instances[i].info.ia_name, (const char *)handle)) {
                *out = create_object(&instances[i], DAT_HANDLE_TYPE_IA);
                return DAT_SUCCESS;
            }
        return DAT_CLASS_ERROR | DAT_INTERNAL_ERROR | 0;
    }
    if (op == DAT_CLOSE_EXTENSION_BASE) {
        free(handle);
        return DAT_SUCCESS;
    }
    if (op == 7) {
        long sum = 0;
        double real;
        long *out;

        for (i = 0; i < 10; i++)
            sum += va_arg(args, long) << (4 * i);
        real = va_arg(args, double);
        out = va_arg(args, long *);
        out[0] = sum;
        out[1] = (long)(real * 4);
        return DAT_SUCCESS;
    }
    return DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED | 0;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
    char value[512];
    int i;

    for (i = 0; i < INSTANCES; i++) {
        struct instance *instance = &instances[i];

        if (instance->used)
            continue;
        memset(instance, 0, sizeof *instance);
        instance->used = 1;
        instance->info = *info;
        word(params, "log=", instance->log, sizeof instance->log);
        if (word(params, "open=", value, sizeof value))
            instance->open = strtoul(value, NULL, 0);
        if (word(params, "close=", value, sizeof value))
            instance->close = strtoul(value, NULL, 0);
        instance->silent = word(params, "register=", value, sizeof value) != NULL;
        instance->keep = word(params, "keep=", value, sizeof value) != NULL;
        instance->extension = word(params, "extension=", value, sizeof value) != NULL;

        if (word(params, "call=", value, sizeof value))
            instance->call = (void (*)(int))strtoul(value, NULL, 0);

        instance->table.device_name = instance->info.ia_name;
        instance->table.ia_open_func = ia_open;
        instance->table.ia_query_func = ia_query;
        instance->table.ia_close_func = ia_close;
        instance->table.get_handle_type_func = get_handle_type;
        instance->table.pz_create_func = pz_create;
        instance->table.pz_free_func = pz_free;
        instance->table.ia_ha_related_func = ia_ha_related;
        instance->table.handle_extendedop_func = extendedop;
        log_call(instance, "init %s %d.%d %d", info->ia_name, info->dapl_version_major, info->dapl_version_minor,
            info->is_thread_safe);
        if (instance->call)
            instance->call(1);
        if (!instance->silent)
            instance->registered = dat_registry_add_provider(&instance->table, info) == DAT_SUCCESS;
        return;
    }
}

#ifndef NO_FINI
void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    int i;

    for (i = 0; i < INSTANCES; i++) {
        struct instance *instance = &instances[i];

        if (!instance->used || strcmp(instance->info.ia_name, info->ia_name))
            continue;
        log_call(instance, "fini %s", info->ia_name);
        if (instance->call)
            instance->call(0);
        if (instance->registered && !instance->keep)
            dat_registry_remove_provider(&instance->table, info);
        instance->used = 0;
        return;
    }
}
#endif

/* Every provider with extensions has this function; OFED's registry looks for it. */
void dapl_extensions(void)
{
}
