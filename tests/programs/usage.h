/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The descriptors and threads of a process, and its memory as malloc accounts for it. The number of
 * pages that the process has would not show leaks: it depends on when the C library returns pages
 * to the system.
 */

#ifndef USAGE_H
#define USAGE_H

#include "dat_test.h"

#include <dirent.h>
#include <malloc.h>

struct usage {
    long descriptors, threads, in_use;
};

static inline long entries(const char *path)
{
    DIR *dir = opendir(path);
    long count = 0;
    EXPECT(dir, "%s: %s", path, strerror(errno));
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/*
 * malloc counts memory that its threads keep in caches as handed out. The caches must be off, which
 * has to be set before the program starts.
 */
static inline void start_without_caches(char **argv)
{
    static const char *setting = "glibc.malloc.tcache_count=0";
    const char *present = getenv("GLIBC_TUNABLES");
    if (present && strcmp(present, setting) == 0)
        return;
    setenv("GLIBC_TUNABLES", setting, 1);
    execv("/proc/self/exe", argv);
    EXPECT(0, "/proc/self/exe: %s", strerror(errno));
}

/*
 * Returns how many octets malloc has handed out: the octets that it has taken from the system, less
 * the free ones.
 */
static inline long bytes_in_use(void)
{
    /* malloc_info prints the totals over all heaps last. */
    const char *totals, *names[] = {"\"rest\"", "\"fast\"", "\"mmap\"", "\"current\""};
    long sizes[4];
    char *report = NULL;
    size_t length;
    FILE *stream = open_memstream(&report, &length);
    EXPECT(stream && malloc_info(0, stream) == 0 && fclose(stream) == 0, "malloc_info failed");
    totals = strstr(report, "</heap>");
    for (const char *next = totals; next; next = strstr(next + 1, "</heap>"))
        totals = next;
    for (int i = 0; i < 4; i++) {
        const char *line = totals ? strstr(totals, names[i]) : NULL;
        const char *size = line ? strstr(line, "size=\"") : NULL;
        EXPECT(size, "malloc_info does not report %s:\n%s", names[i], report);
        sizes[i] = atol(size + strlen("size=\""));
    }
    free(report);
    return sizes[2] + sizes[3] - sizes[0] - sizes[1];
}

static inline struct usage usage(void)
{
#ifdef __SANITIZE_ADDRESS__
    /* The sanitizer keeps freed memory for a while, and reports leaks itself. */
    return (struct usage){.descriptors = entries("/proc/self/fd"),
                          .threads = entries("/proc/self/task")};
#endif
    return (struct usage){
        .descriptors = entries("/proc/self/fd"),
        .threads = entries("/proc/self/task"),
        .in_use = bytes_in_use(),
    };
}

#endif
