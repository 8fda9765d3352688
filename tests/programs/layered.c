/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A layered provider and its consumer in one source. If VENDOR is defined, the source is the
 * loadable provider. When it is started, it lists the adapters and opens the adapter that its
 * ia_params name; it closes that adapter when it is finished. Otherwise the source is the
 * consumer's program:
 *
 *     layered PROVIDER [STAYS]
 *
 * PROVIDER is the path of the provider. STAYS is a part of the path of the lower adapter's library,
 * which must stay in memory when the registry has unloaded it.
 */

#define _GNU_SOURCE
#include "dat_test.h"
#ifdef UDAPL_1_2
#include <dat/dat_registry.h>
#define VERSION_MAJOR 1
#define VERSION_MINOR 2
#else
#include <dat2/dat_registry.h>
#define VERSION_MAJOR 2
#define VERSION_MINOR 0
#endif

enum { QLEN = 8 };

#ifdef VENDOR

static DAT_PROVIDER upper;

static struct object {
    const DAT_PROVIDER *provider;
    DAT_HANDLE_TYPE type;
} adapter = {&upper, DAT_HANDLE_TYPE_IA}, async = {&upper, DAT_HANDLE_TYPE_EVD};

static DAT_IA_HANDLE lower = DAT_HANDLE_NULL;

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async_evd,
                          DAT_IA_HANDLE *ia)
{
    EXPECT(!strcmp(name, upper.device_name) && qlen == QLEN, "wrong arguments");
    *async_evd = &async;
    *ia = &adapter;
    return DAT_SUCCESS;
}

/* Asks the lower adapter, which must be usable. */
static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *async_evd, DAT_IA_ATTR_MASK mask,
                           DAT_IA_ATTR *attr, DAT_PROVIDER_ATTR_MASK provider_mask,
                           DAT_PROVIDER_ATTR *provider_attr)
{
    EXPECT(ia == &adapter, "wrong handle");
    return dat_ia_query(lower, async_evd, mask, attr, provider_mask, provider_attr);
}

static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    (void)flags;
    EXPECT(ia == &adapter, "wrong handle");
    return DAT_SUCCESS;
}

static DAT_RETURN open_adapter(const char *name, DAT_IA_HANDLE *ia)
{
    char copy[DAT_NAME_MAX_LENGTH];
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    snprintf(copy, sizeof copy, "%s", name);
    return dat_ia_openv(copy, QLEN, &async_evd, ia, VERSION_MAJOR, VERSION_MINOR, DAT_FALSE);
}

static void list_adapters(const char *first, const char *second)
{
    enum { ROOM = 64 };
    DAT_PROVIDER_INFO infos[ROOM], *list[ROOM];
    DAT_COUNT count = 0;
    int found = 0;
    for (int i = 0; i < ROOM; i++)
        list[i] = &infos[i];
    OK(dat_registry_list_providers(ROOM, &count, list));
    for (int i = 0; i < count; i++)
        found += !strcmp(infos[i].ia_name, first) || !strcmp(infos[i].ia_name, second);
    EXPECT(found >= 2, "%s or %s is not among the %d adapters", first, second, count);
}

/* An adapter of the provider itself cannot be opened while the provider is started or finished. */
static void cannot_open_itself(void)
{
    DAT_IA_HANDLE itself;
    DAT_RETURN status = open_adapter(upper.device_name, &itself);
    EXPECT(DAT_GET_TYPE(status) == DAT_PROVIDER_NOT_FOUND, "open of itself: %#x", status);
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *params)
{
    upper.device_name = info->ia_name;
    upper.ia_open_func = ia_open;
    upper.ia_query_func = ia_query;
    upper.ia_close_func = ia_close;
    list_adapters(info->ia_name, params);
    cannot_open_itself();
    OK(open_adapter(params, &lower));
    OK(dat_registry_add_provider(&upper, info));
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
    DAT_PROVIDER_INFO *list = NULL;
    DAT_COUNT count = 0;
    EXPECT(DAT_GET_TYPE(dat_registry_list_providers(0, &count, &list)) == DAT_INVALID_PARAMETER &&
               count > 0,
           "no adapter is listed");
    cannot_open_itself();
    OK(dat_ia_close(lower, DAT_CLOSE_ABRUPT_FLAG));
    lower = DAT_HANDLE_NULL;
    OK(dat_registry_remove_provider(&upper, info));
}

#else

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 20 };

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

/* Returns whether the text is part of a path in the process's memory map. */
static bool is_mapped(const char *path)
{
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps, "no memory map");
    while (fgets(line, sizeof line, maps))
        found = found || strstr(line, path);
    fclose(maps);
    return found;
}

/* No signal is blocked, and one is delivered at once. */
static void takes_signals(void)
{
    sigset_t blocked;
    sig_atomic_t before = signals;
    EXPECT(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0, "no mask");
    for (int number = 1; number < NSIG; number++)
        EXPECT(sigismember(&blocked, number) != 1, "signal %d stays blocked", number);
    raise(SIGUSR1);
    EXPECT(signals == before + 1, "the signal is not delivered");
}

static DAT_IA_HANDLE open_layered(void)
{
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async_evd = DAT_HANDLE_NULL;
    OK(dat_ia_open("layered", QLEN, &async_evd, &ia));
    return ia;
}

/* Opens and closes. Only the last close of all threads finishes the provider. */
static void *cycles(void *unused)
{
    for (int i = 0; i < ROUNDS; i++)
        OK(dat_ia_close(open_layered(), DAT_CLOSE_ABRUPT_FLAG));
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = on_signal};
    EXPECT(argc == 2 || argc == 3, "usage: layered PROVIDER [STAYS]");
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0, "no handler");

    for (int i = 0; i < 2; i++) {
        DAT_IA_ATTR attr;
        DAT_IA_HANDLE ia = open_layered();
        takes_signals();
        EXPECT(is_mapped(argv[1]), "the provider is not loaded");
        OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
        EXPECT(attr.max_eps > 0, "the lower adapter has no endpoints");
        OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
        takes_signals();
        EXPECT(!is_mapped(argv[1]), "the provider is not unloaded");
        EXPECT(argc == 2 || is_mapped(argv[2]), "%s does not stay in memory", argv[2]);
    }

    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, cycles, NULL) == 0, "no thread");
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0, "no join");
    takes_signals();
    EXPECT(!is_mapped(argv[1]), "the provider is not unloaded");
    puts("ok");
    return 0;
}

#endif
