/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an attempt to connect says that fails of this host, not of its peer:
 *
 *   no_way route   no route leads to the peer: DAT_CONNECTION_EVENT_UNREACHABLE, and the log says why
 *   no_way ports   no local port is left: DAT_INSUFFICIENT_RESOURCES, the log says which; what is connected goes on
 *
 * It changes the ports that its network namespace gives out, and restores them.
 */

#include "dat_test.h"

#include <fcntl.h>

/* What adapters have written to standard error so far. */
static const char *logged(void)
{
    static char text[65536];
    ssize_t length = pread(STDERR_FILENO, text, sizeof text - 1, 0);
    EXPECT(length >= 0, "no log: %s", strerror(errno));
    text[length] = 0;
    return text;
}

static void log_into_a_file(void)
{
    FILE *log = tmpfile();
    EXPECT(log && dup2(fileno(log), STDERR_FILENO) == STDERR_FILENO, "no file: %s", strerror(errno));
    EXPECT(setenv("OPENDAT_LOG", "warn", 1) == 0, "no memory");
}

static DAT_RETURN connect_to_port(DAT_EP_HANDLE ep, const char *address, DAT_CONN_QUAL port)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    EXPECT(inet_pton(AF_INET, address, &to.sin_addr) == 1, "%s is no address", address);
    return dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&to, port, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
                          DAT_CONNECT_DEFAULT_FLAG);
}

static void without_a_route(struct end *end)
{
    DAT_EVENT event;
    /* A network for examples, which nobody has. */
    OK(connect_to_port(end->ep, "192.0.2.1", 7000));
    event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_UNREACHABLE, "event 0x%x", event.event_number);
    EXPECT(strstr(logged(), "because=this host has no route to the peer"), "the log does not say why");
}

static const char *ports = "/proc/sys/net/ipv4/ip_local_port_range";
static char before[64];

static void give_out(const char *range)
{
    int file = open(ports, O_WRONLY);
    EXPECT(file >= 0 && write(file, range, strlen(range)) == (ssize_t)strlen(range), "%s: %s", ports, strerror(errno));
    close(file);
}

static void restore(void)
{
    give_out(before);
}

static void give_out_one_port(void)
{
    int file = open(ports, O_RDONLY);
    EXPECT(file >= 0 && read(file, before, sizeof before - 1) > 0, "%s: %s", ports, strerror(errno));
    close(file);
    give_out("40000 40000");
    atexit(restore);
}

static void without_a_port(struct end *end)
{
    DAT_EP_ATTR attr = ep_attributes(4);
    DAT_CONN_QUAL port = free_port();
    DAT_EP_HANDLE server, another;
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    DAT_RETURN status;

    OK(dat_psp_create(end->ia, port, end->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &server));
    OK(dat_ep_create(end->ia, end->pz, end->recv, end->request, end->connect, &attr, &another));
    give_out_one_port();
    OK(connect_to_port(end->ep, "127.0.0.1", port));
    accept_next(end->cr, server, end->connect);
    wait_established(end->connect);
    status = connect_to_port(another, "127.0.0.1", port);
    EXPECT(DAT_GET_TYPE(status) == DAT_INSUFFICIENT_RESOURCES, "%s", status_text(status));
    EXPECT(strstr(logged(), "because=this host has no local port left"), "the log does not say why");

    post_receives(end, 1, 64);
    {
        DAT_LMR_TRIPLET segment = local_segment(end, 64, 64);
        DAT_DTO_COOKIE cookie = {.as_64 = 1};
        OK(dat_ep_post_send(server, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
    event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "the connection has suffered");
    wait_event(end->request);

    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_ABRUPT_FLAG));
    wait_event(end->connect);
    wait_event(end->connect);
    give_out(before);
    OK(connect_to_port(another, "127.0.0.1", port));
    OK(dat_ep_reset(server));
    accept_next(end->cr, server, end->connect);
    wait_established(end->connect);
    OK(dat_ep_disconnect(another, DAT_CLOSE_ABRUPT_FLAG));
    wait_event(end->connect);
    wait_event(end->connect);
    OK(dat_psp_free(psp));
    OK(dat_ep_free(another));
    OK(dat_ep_free(server));
}

int main(int argc, char **argv)
{
    struct end end;
    EXPECT(argc == 2, "usage: no_way route|ports");
    log_into_a_file();
    end_open(&end, 4096, 4);
    if (strcmp(argv[1], "route") == 0)
        without_a_route(&end);
    else
        without_a_port(&end);
    end_close(&end);
    puts("ok");
    return 0;
}
