/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A library to preload. Debian's libdaplofa stays loaded until the process ends, although the
 * registry unloads it.
 *
 * libdaplofa does not join its thread when the registry finishes it. On a busy machine the thread
 * still runs the code of the library when the library is unloaded, and the process crashes.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>

int dlclose(void *library)
{
    struct link_map *map;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && strstr(map->l_name, "libdaplofa")) {
        return 0;
    }
    int (*unload)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
    return unload(library);
}
