/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Somebody who attacks without a pause what programs over our providers have open, and has no
 * privilege: another user of the host, or somebody on another host. Root starts the program. It
 * listens to the wire first, where the attack needs to know the victim's connections, and then
 * becomes another user for good.
 *
 *   attacker ATTACK SOURCE VICTIM CLOSED OPEN...
 *
 * SOURCE and VICTIM are addresses of IPv4. OPEN are the victim's ports, CLOSED is one that nobody
 * has. SIGUSR1 sends the attack to the open ports, SIGUSR2 the same packets to the closed one. The
 * program rests until the first of these. It says `listens` when it does, `rests` when it knows
 * enough, and now and then how many packets have gone where, and in how many seconds: `open 123456
 * 0.512`.
 */

#define _GNU_SOURCE
#include "dat_test.h"
#include "local_sockets.h"

#include <fcntl.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <netpacket/packet.h>
#include <sys/resource.h>

/* As Linux has it; some libc's headers lack it. */
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

enum {
    ATTACKER = 65534,
    ROCE = 4791,
    BATCH = 64,
    POOL = 8192,
    LARGEST = 1472,
    MOST_PORTS = 4,
    CALLERS = 900,
    MOST_HEARD = 16,
};

static struct in_addr source, victim;
static in_port_t source_port, closed_port, open_ports[MOST_PORTS];
static int ports;

/* xorshift: whoever reads the packets does not foresee what it gives, no more. */
static uint64_t dice(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void put(uint8_t *at, uint64_t value, int octets)
{
    while (octets-- > 0) {
        at[octets] = (uint8_t)value;
        value >>= 8;
    }
}

static uint64_t number_at(const uint8_t *at, int octets)
{
    uint64_t value = 0;
    for (int i = 0; i < octets; i++)
        value = value << 8 | at[i];
    return value;
}

/* ---- packets ----------------------------------------------------------------------------------- */

struct packet {
    size_t length;
    uint8_t octets[LARGEST];
};

enum { BTH = 12, DETH = 8, MAD = 256, MAD_HEADER = 24, ICRC = 4 };
enum { SEND_ONLY = 0x04, ACKNOWLEDGE = 0x11, DATAGRAM = 0x64 };
enum { REQ = 0x10, REJ = 0x12, REP = 0x13, DREQ = 0x15 };

static uint32_t crc(uint32_t state, const uint8_t *octets, size_t length)
{
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320 : 0);
        }
    while (length-- > 0)
        state = state >> 8 ^ table[(state ^ *octets++) & 0xff];
    return state;
}

/*
 * Appends the ICRC that the packet should have on its way to RoCEv2's port: the sockets send with
 * DF and an ID of 0.
 */
static void seal(struct packet *packet)
{
    uint8_t image[8 + 20 + 8 + BTH];
    size_t udp = 8 + packet->length + ICRC;
    uint32_t state;
    memset(image, 0xff, sizeof image);
    image[8] = 0x45;
    put(image + 10, 20 + udp, 2);
    put(image + 12, 0x4000, 4);
    image[17] = IPPROTO_UDP;
    memcpy(image + 20, &source, 4);
    memcpy(image + 24, &victim, 4);
    put(image + 28, source_port, 2);
    put(image + 30, ROCE, 2);
    put(image + 32, udp, 2);
    memcpy(image + 36, packet->octets, BTH);
    image[36 + 4] = 0xff;
    state = crc(0xffffffff, image, sizeof image);
    state = ~crc(state, packet->octets + BTH, packet->length - BTH);
    for (int i = 0; i < ICRC; i++)
        packet->octets[packet->length++] = (uint8_t)(state >> 8 * i);
}

static void put_bth(struct packet *packet, int opcode, uint32_t qpn, uint32_t psn)
{
    memset(packet->octets, 0, BTH);
    packet->octets[0] = (uint8_t)opcode;
    packet->octets[1] = 0x40;
    put(packet->octets + 2, 0xffff, 2);
    put(packet->octets + 5, qpn, 3);
    packet->octets[8] = 0x80;
    put(packet->octets + 9, psn, 3);
    packet->length = BTH;
}

/* Starts a message of connection management, and answers its body. */
static uint8_t *put_mad(struct packet *packet, int attribute, uint64_t transaction)
{
    uint8_t *mad = packet->octets + BTH + DETH;
    put_bth(packet, DATAGRAM, 1, 0);
    packet->octets[8] = 0;
    put(packet->octets + BTH, 0x80010000, 4);
    put(packet->octets + BTH + 4, 1, 4);
    memset(mad, 0, MAD);
    put(mad, 0x01070203, 4);
    put(mad + 8, transaction, 8);
    put(mad + 16, (uint64_t)attribute, 2);
    packet->length += DETH + MAD;
    return mad + MAD_HEADER;
}

/* ---- what is heard of the victim's connections --------------------------------------------------- */

/* Queue pairs that packets go to, with the last PSN that was heard. */
static struct {
    uint32_t qpn, psn;
} flows[MOST_HEARD];

/* Who has asked for a connection, or accepted one. */
static struct {
    uint64_t guid, service;
    uint32_t qpn;
} callers[MOST_HEARD];

static int flows_heard, callers_heard;

static void hear_flow(uint32_t qpn, uint32_t psn)
{
    int i = 0;
    while (i < flows_heard && flows[i].qpn != qpn)
        i++;
    if (i == MOST_HEARD)
        return;
    flows[i].qpn = qpn;
    flows[i].psn = psn;
    if (i == flows_heard)
        flows_heard++;
}

static void hear_caller(uint64_t guid, uint32_t qpn, uint64_t service)
{
    for (int i = 0; i < callers_heard; i++)
        if (callers[i].qpn == qpn)
            return;
    if (callers_heard == MOST_HEARD)
        return;
    callers[callers_heard].guid = guid;
    callers[callers_heard].qpn = qpn;
    callers[callers_heard++].service = service;
}

static void hear(const uint8_t *packet, size_t length)
{
    const uint8_t *body = packet + BTH + DETH + MAD_HEADER;
    static uint64_t service;
    if (length < BTH)
        return;
    if (packet[0] >> 5 == 0)
        hear_flow((uint32_t)number_at(packet + 5, 3), (uint32_t)number_at(packet + 9, 3));
    if (packet[0] != DATAGRAM || length < BTH + DETH + MAD)
        return;
    switch (number_at(packet + BTH + DETH + 16, 2)) {
    case REQ:
        service = number_at(body + 8, 8);
        hear_caller(number_at(body + 16, 8), (uint32_t)number_at(body + 32, 3), service);
        break;
    case REP:
        hear_caller(number_at(body + 28, 8), (uint32_t)number_at(body + 12, 3), service);
        break;
    }
}

/* Both ends of two connections: dapltest has one for what it says of its test, and one to be tested. */
static void listen_to_wire(void)
{
    struct timeval limit = {.tv_sec = WAIT_LIMIT_SECONDS};
    static uint8_t packet[65536];
    int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
    EXPECT(fd >= 0, "packet socket: %s", strerror(errno));
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, "setsockopt: %s",
           strerror(errno));
    puts("listens");
    while (flows_heard < 4 || callers_heard < 4) {
        ssize_t length = recv(fd, packet, sizeof packet, 0);
        size_t ip = (size_t)(packet[0] & 0xf) * 4;
        EXPECT(length > 0, "%d queue pairs and %d callers were heard: %s", flows_heard, callers_heard,
               strerror(errno));
        if (packet[9] != IPPROTO_UDP || (size_t)length < ip + 8)
            continue;
        if (number_at(packet + ip + 2, 2) == ROCE)
            hear(packet + ip + 8, (size_t)length - ip - 8);
    }
    close(fd);
}

/* ---- attacks with datagrams ---------------------------------------------------------------------- */

/* Octets of all lengths; the ICRC of every other one is right. */
static void garbage(struct packet *packet, uint64_t n)
{
    packet->length = dice() % (LARGEST - ICRC);
    for (size_t i = 0; i < packet->length; i++)
        packet->octets[i] = (uint8_t)dice();
    if (n % 2 == 0 || packet->length < BTH)
        return;
    packet->length &= ~(size_t)3;
    seal(packet);
}

static void put_req(struct packet *packet, uint64_t guid, uint32_t qpn, uint64_t service)
{
    uint8_t *body = put_mad(packet, REQ, dice()), *path = body + 52, *private = body + 140;
    put(body, dice(), 4);
    put(body + 8, service, 8);
    put(body + 16, guid, 8);
    put(body + 32, qpn, 3);
    body[35] = body[39] = 4;
    body[43] = 17 << 3;
    put(body + 44, dice(), 3);
    body[47] = 17 << 3 | 7;
    put(body + 48, 0xffff, 2);
    body[50] = 3 << 4 | 7;
    body[51] = 15 << 4;
    put(path, 0xffffffff, 4);
    put(path + 14, 0xffff, 2);
    memcpy(path + 16, &source, 4);
    put(path + 30, 0xffff, 2);
    memcpy(path + 32, &victim, 4);
    path[41] = 64;
    path[43] = 17 << 3;
    private[1] = 0x40;
    put(private + 2, dice(), 2);
    memcpy(private + 16, &source, 4);
    memcpy(private + 32, &victim, 4);
    seal(packet);
}

/* Requests to connect, right in all, of services that nobody has: no privileged port has one. */
static void requests(struct packet *packet, uint64_t n)
{
    put_req(packet, dice() | 1, (uint32_t)dice() & 0xffffff, 0x01060000 + n % 1024);
}

/* Requests to connect that name queue pairs which are connected. */
static void stale_requests(struct packet *packet, uint64_t n)
{
    int i = (int)(n % (uint64_t)callers_heard);
    put_req(packet, callers[i].guid, callers[i].qpn, callers[i].service);
}

static void put_data(struct packet *packet, uint32_t qpn, uint32_t psn, size_t length)
{
    put_bth(packet, SEND_ONLY, qpn, psn);
    memset(packet->octets + BTH, 0xee, length);
    packet->length += length;
    seal(packet);
}

/* Packets and messages of the victim's connections, from a port that is not the peer's. */
static void injections(struct packet *packet, uint64_t n)
{
    enum { ACK = 0x1f, NAK = 0x60 };
    int i = (int)(n % (uint64_t)flows_heard);
    uint32_t qpn = flows[i].qpn, psn = flows[i].psn + (uint32_t)n;
    uint8_t *body;
    switch (n / (uint64_t)flows_heard % 5) {
    case 0:
        put_data(packet, qpn, psn, 64);
        return;
    case 1:
    case 2:
        put_bth(packet, ACKNOWLEDGE, qpn, psn);
        put(packet->octets + BTH, n % 2 ? ACK : NAK + n / 2 % 4, 1);
        put(packet->octets + BTH + 1, n, 3);
        packet->length += 4;
        break;
    case 3:
        body = put_mad(packet, DREQ, dice());
        put(body, dice(), 4);
        put(body + 4, dice(), 4);
        put(body + 8, qpn, 3);
        break;
    default:
        body = put_mad(packet, REJ, dice());
        put(body, dice(), 4);
        put(body + 4, dice(), 4);
        body[8] = 2 << 6;
        put(body + 10, 28, 2);
    }
    seal(packet);
}

/* All PSNs, one after the other, of a queue pair that is guessed: another one for each round. */
static void sweep(struct packet *packet, uint64_t n)
{
    /* Of a slot that is likely: the lowest are taken first. */
    static uint32_t guess;
    if (n % (1 << 24) == 0)
        guess = ((uint32_t)dice() & 0xffff80) | (uint32_t)(n >> 24) % 4;
    put_data(packet, guess, (uint32_t)n & 0xffffff, 16);
}

static const struct attack {
    const char *name;
    void (*make)(struct packet *, uint64_t);
    /* It needs to know the victim's connections. */
    bool listens;
    /* No packet comes twice; of the others POOL are made, and sent again and again. */
    bool fresh;
} ATTACKS[] = {
    {"garbage", garbage, false, false},      {"requests", requests, false, false},
    {"stale_requests", stale_requests, true, false}, {"injections", injections, true, false},
    {"sweep", sweep, false, true},
};

static int udp_socket(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = source};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), discover = IP_PMTUDISC_DO;
    EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
               getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
               setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover) == 0,
           "UDP socket: %s", strerror(errno));
    source_port = ntohs(address.sin_port);
    return fd;
}

/* Sends a batch to an address, and answers how many datagrams have gone. */
static long send_batch(const struct attack *attack, struct sockaddr_in *to)
{
    static struct packet *pool;
    static struct mmsghdr batch[BATCH];
    static struct iovec pieces[BATCH];
    static uint64_t next;
    static int fd;
    int sent;
    if (pool == NULL) {
        fd = udp_socket();
        pool = calloc(POOL, sizeof *pool);
        EXPECT(pool != NULL, "no memory");
        for (uint64_t n = 0; n < POOL && !attack->fresh; n++)
            attack->make(&pool[n], n);
    }
    for (int i = 0; i < BATCH; i++, next++) {
        struct packet *packet = &pool[next % POOL];
        if (attack->fresh)
            attack->make(packet, next);
        pieces[i] = (struct iovec){packet->octets, packet->length};
        batch[i].msg_hdr = (struct msghdr){
            .msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    sent = sendmmsg(fd, batch, BATCH, 0);
    /* The error may be one that an earlier datagram has met on its way. */
    EXPECT(sent > 0 || errno == ECONNREFUSED || errno == ENOBUFS, "sendmmsg: %s", strerror(errno));
    return sent > 0 ? sent : 0;
}

/* ---- attacks on other sockets -------------------------------------------------------------------- */

/* TCP callers, who say what no caller says, or nothing. As many as may be stay until others come. */
static long call(const struct sockaddr_in *to, bool babbles)
{
    static const char words[300] = "GET / HTTP/1.1";
    static int calls[CALLERS], next;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = source};
    int on = 1, fd;
    if (calls[next] > 0)
        close(calls[next]);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    EXPECT(fd >= 0, "TCP socket: %s", strerror(errno));
    calls[next] = fd;
    next = (next + 1) % CALLERS;
    EXPECT(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) == 0 &&
               bind(fd, (struct sockaddr *)&from, sizeof from) == 0,
           "TCP socket: %s", strerror(errno));
    /* Over the loopback the connection is there, or refused, when this returns. */
    if ((connect(fd, (const struct sockaddr *)to, sizeof *to) == 0 || errno == EINPROGRESS) && babbles)
        send(fd, words, sizeof words, MSG_NOSIGNAL);
    return 1;
}

/* The local sockets that the kernel lists; or, closed, a name that nobody has. */
static long attack_local_sockets(bool closed)
{
    struct sockaddr_un nobody = {.sun_family = AF_UNIX, .sun_path = "/tmp/opendat-nobody/4791"};
    struct attempts attempts = {0, 0};
    if (closed)
        for (; attempts.made < BATCH; attempts.made++)
            is_accepted(attempts.made % 2 ? SOCK_STREAM : SOCK_DGRAM, &nobody, sizeof nobody);
    else
        attack_all(&attempts);
    EXPECT(attempts.taken == 0, "%ld connections and datagrams of another user were taken",
           attempts.taken);
    return attempts.made;
}

/* ---- the rest ------------------------------------------------------------------------------------ */

/* Attacks once more, and answers with how many packets or attempts. */
static long strike(const char *name, const struct attack *attack, bool closed)
{
    static int next;
    in_port_t port = closed ? closed_port : open_ports[next++ % ports];
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr = victim, .sin_port = htons(port)};
    if (attack != NULL)
        return send_batch(attack, &to);
    if (strcmp(name, "local_sockets") == 0)
        return attack_local_sockets(closed);
    return call(&to, strcmp(name, "babbling_callers") == 0);
}

static const struct attack *find_attack(const char *name)
{
    static const char *const OTHERS[] = {"local_sockets", "silent_callers", "babbling_callers"};
    for (size_t i = 0; i < sizeof ATTACKS / sizeof *ATTACKS; i++)
        if (strcmp(ATTACKS[i].name, name) == 0)
            return &ATTACKS[i];
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (strcmp(OTHERS[i], name) == 0)
            return NULL;
    FAIL("%s is no attack", name);
}

int main(int argc, char **argv)
{
    const struct timespec no_time = {0, 0};
    const struct attack *attack;
    struct {
        long packets;
        double seconds;
    } done[2] = {{0, 0}, {0, 0}};
    sigset_t signals;
    double since, told;
    int way;

    EXPECT(argc >= 6 && argc - 5 <= MOST_PORTS,
           "usage: attacker ATTACK SOURCE VICTIM CLOSED OPEN...");
    attack = find_attack(argv[1]);
    EXPECT(inet_pton(AF_INET, argv[2], &source) == 1 && inet_pton(AF_INET, argv[3], &victim) == 1,
           "%s or %s is no address", argv[2], argv[3]);
    closed_port = (in_port_t)atoi(argv[4]);
    for (ports = 0; ports < argc - 5; ports++)
        open_ports[ports] = (in_port_t)atoi(argv[5 + ports]);

    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (attack != NULL && attack->listens)
        listen_to_wire();
    EXPECT(setresgid(ATTACKER, ATTACKER, ATTACKER) == 0 &&
               setresuid(ATTACKER, ATTACKER, ATTACKER) == 0,
           "setresuid: %s", strerror(errno));
    puts("rests");

    way = sigwaitinfo(&signals, NULL);
    for (told = since = now();;) {
        double time;
        int signal = sigtimedwait(&signals, NULL, &no_time);
        if (signal > 0)
            way = signal;
        done[way == SIGUSR2].packets += strike(argv[1], attack, way == SIGUSR2);
        time = now();
        done[way == SIGUSR2].seconds += time - since;
        since = time;
        if (time - told > 0.05) {
            printf("%s %ld %.3f\n", way == SIGUSR2 ? "closed" : "open",
                   done[way == SIGUSR2].packets, done[way == SIGUSR2].seconds);
            told = time;
        }
    }
}
