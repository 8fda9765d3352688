/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Attacks by another user of the host on programs that use softroce. Root runs this program in a
 * network namespace that has the users of the host. The process goes on as the victim, and the
 * attacker is a child process of another user.
 *
 *   other_user squats     the attacker first creates the victim's directory of local sockets: the
 *                         victim's processes use another one and share the port. Then the attacker
 *                         binds all socket names that an earlier OpenDAT used: the adapter opens
 *   other_user connects   the attacker connects and sends to all local sockets that the kernel
 *                         lists, without pause, while adapters open and make connections: no
 *                         connection and no datagram is accepted
 *   other_user listens    the attacker binds the socket name that a service had in an earlier
 *                         OpenDAT: a connection request for that service does not reach the
 *                         attacker
 *   other_user asks       the attacker asks for the adapters' statistics (stats=on), and gets none
 *   other_user set_uid    a program with different real and effective users opens no adapter, so it
 *                         shares the port of neither user
 */

#define _GNU_SOURCE
#include "dat_test.h"
#include "local_sockets.h"

#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { ATTACKER = 65534, VICTIM = 65533, MEASURED_ATTEMPTS = 100000, UNUSED_PORT = 21907 };

static const char ADDRESS[] = "opendat/rocev2/127.0.0.1", DIRECTORY[] = "/tmp/opendat-65533";

static void become(uid_t user)
{
    EXPECT(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0, "setresuid: %s",
           strerror(errno));
    EXPECT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl: %s", strerror(errno));
}

static int bind_abstract(int type, const char *name)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(&address, name);
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0, "%s: %s", name,
           strerror(errno));
    EXPECT(type == SOCK_DGRAM || listen(fd, 1) == 0, "%s: %s", name, strerror(errno));
    return fd;
}

/*
 * Starts the attacker, and goes on as the victim. The attacker's process ends with the result of
 * `attack`, which gets the attacker's end of a pair of sockets.
 */
static pid_t start_attacker(int (*attack)(int), int *socket)
{
    int ends[2];
    pid_t child;
    EXPECT(system("rm -rf /tmp/opendat-65533") == 0, "%s cannot be removed", DIRECTORY);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair: %s", strerror(errno));
    child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        close(ends[0]);
        become(ATTACKER);
        exit(attack(ends[1]));
    }
    close(ends[1]);
    become(VICTIM);
    *socket = ends[0];
    return child;
}

static void notify(int socket)
{
    EXPECT(write(socket, "x", 1) == 1, "the other process has ended");
}

static void await_notice(int socket)
{
    char octet;
    EXPECT(read(socket, &octet, 1) == 1, "the other process has ended");
}

/* ---- squats ---------------------------------------------------------------------------------- */

static int bind_all(int parent)
{
    char name[64];
    snprintf(name, sizeof name, "%s/founding", ADDRESS);
    bind_abstract(SOCK_DGRAM, name);
    for (int slot = 0; slot < 127; slot++) {
        snprintf(name, sizeof name, "%s/slot/%d", ADDRESS, slot);
        bind_abstract(SOCK_DGRAM, name);
        snprintf(name, sizeof name, "%s/life/%d", ADDRESS, slot);
        bind_abstract(SOCK_STREAM, name);
    }
    notify(parent);
    await_notice(parent);
    return 0;
}

/*
 * Creates each kind of file at the path of the victim's directory. If the victim created a file in
 * a directory of the attacker, the attacker could not remove that directory.
 */
static int squat(int parent)
{
    char place[] = "/tmp/opendat-attacker-XXXXXX";
    EXPECT(mkdtemp(place) != NULL && chmod(place, 0777) == 0, "mkdtemp: %s", strerror(errno));
    for (int form = 0; form < 3; form++) {
        int made = form == 0   ? mkdir(DIRECTORY, 0777)
                   : form == 1 ? symlink(place, DIRECTORY)
                               : close(open(DIRECTORY, O_CREAT | O_EXCL | O_WRONLY, 0666));
        EXPECT(made == 0 && (form != 0 || chmod(DIRECTORY, 0777) == 0), "%s: %s", DIRECTORY,
               strerror(errno));
        notify(parent);
        await_notice(parent);
        EXPECT((form == 0 ? rmdir(DIRECTORY) : unlink(DIRECTORY)) == 0, "%s: %s", DIRECTORY,
               strerror(errno));
        notify(parent);
        await_notice(parent);
    }
    EXPECT(rmdir(place) == 0, "%s: %s", place, strerror(errno));
    return bind_all(parent);
}

/* Another process of the victim opens the adapter. It can do so only if it finds the first one. */
static void open_beside(void)
{
    struct end end;
    pid_t child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        end_open(&end, 4096, 1);
        end_close(&end);
        exit(0);
    }
    join(child);
}

/* Later adapters of the victim have their usual directory again. Nobody else has opened one. */
static void remove_random_directory(void)
{
    glob_t found;
    EXPECT(glob("/tmp/opendat.*", 0, NULL, &found) == 0, "the victim has used no other directory");
    for (size_t i = 0; i < found.gl_pathc; i++)
        rmdir(found.gl_pathv[i]);
    globfree(&found);
}

static void squats(void)
{
    struct end end;
    int attacker;
    pid_t child = start_attacker(squat, &attacker);
    for (int form = 0; form < 3; form++) {
        await_notice(attacker);
        end_open(&end, 4096, 1);
        open_beside();
        notify(attacker);
        /* The attacker has removed its file before it creates the next one, or binds names. */
        await_notice(attacker);
        open_beside();
        end_close(&end);
        notify(attacker);
    }
    await_notice(attacker);
    end_open(&end, 4096, 1);
    end_close(&end);
    notify(attacker);
    join(child);
    remove_random_directory();
}

/* ---- connects -------------------------------------------------------------------------------- */

static bool is_notified(int parent)
{
    struct pollfd fd = {.fd = parent, .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static int attack_without_pause(int parent)
{
    struct attempts attempts = {0, 0};
    await_notice(parent);
    while (!is_notified(parent))
        attack_all(&attempts);
    await_notice(parent);
    for (long until = attempts.made + MEASURED_ATTEMPTS; attempts.made < until;)
        attack_all(&attempts);
    EXPECT(attempts.accepted == 0,
           "%ld of %ld connections and datagrams of another user were accepted", attempts.accepted,
           attempts.made);
    notify(parent);
    return 0;
}

static double processor_time(void)
{
    struct rusage usage;
    EXPECT(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage: %s", strerror(errno));
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/*
 * Opens two adapters of the victim and connects them. The second adapter gets its sockets from the
 * first one, and requests for one adapter arrive at the other one.
 */
static void connect_two(void)
{
    struct end server, client;
    DAT_CONN_QUAL port = free_port();
    DAT_PSP_HANDLE psp;
    end_open(&server, 4096, 1);
    end_open(&client, 4096, 1);
    OK(dat_psp_create(server.ia, port, server.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    start_connect(client.ep, port);
    accept_next(server.cr, server.ep, server.connect);
    wait_established(client.connect);
    OK(dat_ep_disconnect(client.ep, DAT_CLOSE_GRACEFUL_FLAG));
    EXPECT(wait_event(server.connect).event_number == DAT_CONNECTION_EVENT_DISCONNECTED,
           "not disconnected");
    EXPECT(wait_event(client.connect).event_number == DAT_CONNECTION_EVENT_DISCONNECTED,
           "not disconnected");
    OK(dat_psp_free(psp));
    end_close(&client);
    end_close(&server);
}

/* Prints what the attacks cost a victim that does nothing else. */
static void measure(int attacker)
{
    double time = now(), used = processor_time();
    notify(attacker);
    await_notice(attacker);
    time = now() - time;
    used = processor_time() - used;
    printf("%d attempts in %.2f s took %.2f ms of the victim's processor time, %.2f %% of a core\n",
           MEASURED_ATTEMPTS, time, used * 1e3, used / time * 100);
}

static void connects(void)
{
    struct end end;
    int attacker;
    pid_t child = start_attacker(attack_without_pause, &attacker);
    end_open(&end, 4096, 1);
    notify(attacker);
    for (int i = 0; i < 20; i++)
        connect_two();
    measure(attacker);
    join(child);
    end_close(&end);
}

/* ---- asks ------------------------------------------------------------------------------------ */

static int ask(int parent)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ssize_t length = read(parent, address.sun_path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT(length > 0, "the other process has ended");
    EXPECT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0 &&
               errno == EACCES,
           "another user may connect to %s: %s", address.sun_path, strerror(errno));
    close(fd);
    for (int i = 0; i < MEASURED_ATTEMPTS; i++)
        is_accepted(SOCK_STREAM, &address, sizeof address);
    notify(parent);
    return 0;
}

static void asks(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char octet, *path = address.sun_path;
    glob_t found;
    struct end end;
    int attacker, fd = socket(AF_UNIX, SOCK_STREAM, 0);
    pid_t child = start_attacker(ask, &attacker);
    EXPECT(setenv("OPENDAT_PARAMS", "stats=on", 1) == 0, "setenv: %s", strerror(errno));
    end_open(&end, 4096, 1);
    snprintf(path, sizeof address.sun_path, "%s/*/stats/%d-*", DIRECTORY, (int)getpid());
    EXPECT(glob(path, 0, NULL, &found) == 0 && found.gl_pathc == 1, "%s: not exactly one socket",
           path);
    snprintf(path, sizeof address.sun_path, "%s", found.gl_pathv[0]);
    globfree(&found);
    EXPECT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
               read(fd, &octet, 1) == 1,
           "%s does not answer its own user: %s", path, strerror(errno));
    close(fd);
    EXPECT(write(attacker, path, strlen(path) + 1) > 0, "the attacker has ended");
    measure(attacker);
    join(child);
    end_close(&end);
    EXPECT(access(DIRECTORY, F_OK) == 0 && access(path, F_OK) < 0, "%s is left", path);
}

/* ---- listens --------------------------------------------------------------------------------- */

static int expect_no_request(int parent)
{
    char name[64], packet[4096];
    ssize_t length;
    int fd;
    snprintf(name, sizeof name, "%s/service/%x", ADDRESS, 0x01060000 + UNUSED_PORT);
    fd = bind_abstract(SOCK_DGRAM, name);
    notify(parent);
    await_notice(parent);
    length = recv(fd, packet, sizeof packet, 0);
    EXPECT(length < 0 && errno == EAGAIN, "a request of %zd octets has arrived", length);
    return 0;
}

static void listens(void)
{
    struct end end;
    DAT_EVENT event;
    int attacker;
    pid_t child = start_attacker(expect_no_request, &attacker);
    await_notice(attacker);
    end_open(&end, 4096, 1);
    start_connect(end.ep, UNUSED_PORT);
    event = wait_event(end.connect);
    notify(attacker);
    join(child);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
           "event 0x%x in place of a refusal", event.event_number);
    OK(dat_ep_reset(end.ep));
    end_close(&end);
}

/* ---- set_uid --------------------------------------------------------------------------------- */

static void set_uid(void)
{
    pid_t child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        DAT_RETURN status;
        EXPECT(setresuid(ATTACKER, 0, 0) == 0, "setresuid: %s", strerror(errno));
        status = dat_ia_open(ia_under_test(), 8, &async, &ia);
        EXPECT(status != DAT_SUCCESS, "a program with two users has opened an adapter");
        printf("%s\n", status_text(status));
        exit(0);
    }
    join(child);
}

int main(int argc, char **argv)
{
    const char *how = argc == 2 ? argv[1] : "";
    if (strcmp(how, "squats") == 0)
        squats();
    else if (strcmp(how, "connects") == 0)
        connects();
    else if (strcmp(how, "listens") == 0)
        listens();
    else if (strcmp(how, "asks") == 0)
        asks();
    else if (strcmp(how, "set_uid") == 0)
        set_uid();
    else
        FAIL("usage: other_user squats|connects|listens|asks|set_uid");
    puts("ok");
    return 0;
}
