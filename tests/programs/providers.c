/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lists the adapters for a program that has room for ROOM of them: their names, one on each line,
 * and how many there are.
 */

#ifdef UDAPL_1_2
#include <dat/udat.h>
#else
#include <dat2/udat.h>
#endif

#include <stdio.h>

enum { ROOM = 8 };

int main(void)
{
    DAT_PROVIDER_INFO infos[ROOM], *list[ROOM];
    DAT_COUNT count = 0;

    for (int i = 0; i < ROOM; i++)
        list[i] = &infos[i];
    if (DAT_GET_TYPE(dat_registry_list_providers(0, &count, list)) != DAT_INVALID_PARAMETER)
        return 1;
    printf("%d\n", count);
    if (dat_registry_list_providers(ROOM, &count, list) != DAT_SUCCESS)
        return 2;
    for (int i = 0; i < count; i++)
        printf("%s u%u.%u\n", infos[i].ia_name, infos[i].dapl_version_major,
               infos[i].dapl_version_minor);
    return 0;
}
