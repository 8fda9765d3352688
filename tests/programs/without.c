/* without FEATURE[,FEATURE...] PROGRAM [ARGUMENTS]: runs a program as on a kernel that lacks
 * features. A FEATURE is the name of a system call, which fails with ENOSYS, of an option of
 * setsockopt(2), which fails with ENOPROTOOPT, or of a request of ioctl(2), which fails with
 * ENOTTY. Exit status 77: the kernel does not support seccomp(2). */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The numbers of options and requests that the headers of older systems lack. */
enum { UDP_LEVEL = 17, GRO = 104, MAPPING_QUERY = (int)0xC0686611 };

static const struct feature {
    const char *name;
    int call;
    int second, third; /* the call's second and third argument; 0 stands for any */
} features[] = {
    {"membarrier", SYS_membarrier, 0, 0},
    {"memfd_create", SYS_memfd_create, 0, 0},
    {"process_vm_readv", SYS_process_vm_readv, 0, 0},
    {"sched_setattr", SYS_sched_setattr, 0, 0},
    {"PROCMAP_QUERY", SYS_ioctl, MAPPING_QUERY, 0},
    {"UDP_GRO", SYS_setsockopt, UDP_LEVEL, GRO},
    {"SO_ATTACH_REUSEPORT_CBPF", SYS_setsockopt, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF},
    {"SO_TIMESTAMPING", SYS_setsockopt, SOL_SOCKET, SO_TIMESTAMPING},
};

/* Adds the rules of a feature to the filter. The low half of each argument is compared. */
static unsigned add(struct sock_filter *at, const struct feature *feature)
{
    const struct { int value; size_t offset; } conditions[] = {
        {feature->call, offsetof(struct seccomp_data, nr)},
        {feature->second, offsetof(struct seccomp_data, args[1])},
        {feature->third, offsetof(struct seccomp_data, args[2])},
    };
    const unsigned error = feature->call == SYS_setsockopt ? ENOPROTOOPT :
                           feature->call == SYS_ioctl ? ENOTTY : ENOSYS;
    const unsigned used = feature->third ? 3 : feature->second ? 2 : 1;
    unsigned n = 0, i;

    for (i = 0; i < used; i++) {
        /* If the condition is false, skip the other conditions and the return. */
        unsigned rest = 2 * (used - i - 1) + 1;
        at[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, conditions[i].offset);
        at[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                               (unsigned)conditions[i].value, 0, rest);
    }
    at[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    return n;
}

int main(int argc, char **argv)
{
    struct sock_filter rules[256];
    struct sock_fprog program = {0, rules};
    char *name;
    unsigned i;

    if (argc < 3) {
        fputs("usage: without FEATURE[,FEATURE...] PROGRAM [ARGUMENTS]\n", stderr);
        return 2;
    }
    for (name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
        for (i = 0; i < sizeof features / sizeof *features; i++)
            if (strcmp(features[i].name, name) == 0)
                break;
        if (i == sizeof features / sizeof *features || program.len > 240) {
            fprintf(stderr, "without: unknown feature or too many: %s\n", name);
            return 2;
        }
        program.len += add(rules + program.len, &features[i]);
    }
    rules[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("without: seccomp");
        return 77;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
