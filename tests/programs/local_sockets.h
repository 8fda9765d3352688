/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Attacks all local sockets of other users that the kernel lists. */

#ifndef LOCAL_SOCKETS_H
#define LOCAL_SOCKETS_H

#include "dat_test.h"

#include <stddef.h>
#include <sys/un.h>

static inline socklen_t abstract_address(struct sockaddr_un *address, const char *name)
{
    size_t length = strlen(name);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    EXPECT(length < sizeof address->sun_path, "%s is too long", name);
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* Returns whether a socket accepts a connection or a datagram. */
static inline bool is_accepted(int type, const struct sockaddr_un *address, socklen_t length)
{
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK, 0);
    bool accepted = fd >= 0 && connect(fd, (const struct sockaddr *)address, length) == 0;
    EXPECT(fd >= 0, "socket: %s", strerror(errno));
    if (type == SOCK_DGRAM)
        accepted |= sendto(fd, "hello", 5, 0, (const struct sockaddr *)address, length) == 5;
    close(fd);
    return accepted;
}

struct attempts {
    long made, accepted;
};

/*
 * Attacks each socket that the kernel lists. The columns are number, references, protocol, flags,
 * type, state, inode and name.
 */
static inline void attack_all(struct attempts *attempts)
{
    FILE *list = fopen("/proc/net/unix", "r");
    char line[512], name[256];
    unsigned type;

    EXPECT(list != NULL, "/proc/net/unix: %s", strerror(errno));
    while (fgets(line, sizeof line, list) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        socklen_t length = sizeof address;
        /* The kernel lists no type for a socket that is being closed. */
        if (sscanf(line, "%*s %*s %*s %*s %x %*s %*s %255s", &type, name) != 2 || type == 0)
            continue;
        if (name[0] == '@')
            length = abstract_address(&address, name + 1);
        else
            memcpy(address.sun_path, name, strlen(name) + 1);
        attempts->made++;
        if (is_accepted((int)type, &address, length))
            attempts->accepted++;
    }
    fclose(list);
}

#endif
