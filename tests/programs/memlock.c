/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A library to preload: getrlimit answers that a process may lock any amount of memory. Intel MPI
 * checks this limit before it uses DAPL, since hardware adapters lock memory. Providers without an
 * adapter do not lock any.
 */

#define _GNU_SOURCE
#include <stddef.h>
#include <sys/resource.h>

int getrlimit(__rlimit_resource_t what, struct rlimit *limit)
{
    if (what != RLIMIT_MEMLOCK)
        return prlimit(0, what, NULL, limit);
    limit->rlim_cur = limit->rlim_max = RLIM_INFINITY;
    return 0;
}

int getrlimit64(__rlimit_resource_t what, struct rlimit64 *limit)
{
    if (what != RLIMIT_MEMLOCK)
        return prlimit64(0, what, NULL, limit);
    limit->rlim_cur = limit->rlim_max = RLIM64_INFINITY;
    return 0;
}
