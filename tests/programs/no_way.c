/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Connection attempts that fail because of this host, not because of its peer:
 *
 *   no_way route   no route leads to the peer: DAT_CONNECTION_EVENT_UNREACHABLE, and the log says
 *                  why
 *   no_way ports   no local port is left: DAT_RESOURCE_DEVICE, and the log says why;
 *                  established connections go on
 *
 * `no_way ports` changes the range of local ports of its network namespace, and restores it.
 */

#include "dat_test.h"

#include <fcntl.h>

/* Returns what adapters have written to standard error so far. */
static const char *logged(void)
{
    static char text[65536];
    ssize_t length = pread(STDERR_FILENO, text, sizeof text - 1, 0);
    EXPECT(length >= 0, "the log cannot be read: %s", strerror(errno));
    text[length] = 0;
    return text;
}

static void log_into_a_file(void)
{
    FILE *log = tmpfile();
    EXPECT(log && dup2(fileno(log), STDERR_FILENO) == STDERR_FILENO,
           "standard error cannot be redirected: %s", strerror(errno));
    EXPECT(setenv("OPENDAT_LOG", "warn", 1) == 0, "no memory");
}

static DAT_RETURN connect_to_port(DAT_EP_HANDLE ep, const char *address, DAT_CONN_QUAL port)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    EXPECT(inet_pton(AF_INET, address, &to.sin_addr) == 1, "%s is not an address", address);
    return dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&to, port, WAIT_LIMIT, 0, NULL,
                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
}

static void without_a_route(struct end *end)
{
    DAT_EVENT event;
    /* An address of a network for documentation (RFC 5737), which no host has. */
    OK(connect_to_port(end->ep, "192.0.2.1", 7000));
    event = wait_event(end->connect);
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_UNREACHABLE, "event 0x%x",
           event.event_number);
    EXPECT(strstr(logged(), ": this host has no route to the peer"),
           "the log does not say why");
}

static const char *port_range_file = "/proc/sys/net/ipv4/ip_local_port_range";
static char old_range[64];

static void set_port_range(const char *range)
{
    int file = open(port_range_file, O_WRONLY);
    EXPECT(file >= 0 && write(file, range, strlen(range)) == (ssize_t)strlen(range), "%s: %s",
           port_range_file, strerror(errno));
    close(file);
}

static void restore_port_range(void)
{
    set_port_range(old_range);
}

static void allow_one_port(void)
{
    int file = open(port_range_file, O_RDONLY);
    EXPECT(file >= 0 && read(file, old_range, sizeof old_range - 1) > 0, "%s: %s", port_range_file,
           strerror(errno));
    close(file);
    set_port_range("40000 40000");
    atexit(restore_port_range);
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
    allow_one_port();
    OK(connect_to_port(end->ep, "127.0.0.1", port));
    accept_next(end->cr, server, end->connect);
    wait_established(end->connect);
    status = connect_to_port(another, "127.0.0.1", port);
    EXPECT(DAT_GET_TYPE(status) == DAT_INSUFFICIENT_RESOURCES &&
               DAT_GET_SUBTYPE(status) == DAT_RESOURCE_DEVICE,
           "%s", status_text(status));
    EXPECT(strstr(logged(), "because=this host has no local port left"),
           "the log does not say why");

    post_receives(end, 1, 64);
    {
        DAT_LMR_TRIPLET segment = local_segment(end, 64, 64);
        DAT_DTO_COOKIE cookie = {.as_64 = 1};
        OK(dat_ep_post_send(server, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    }
    event = wait_event(end->recv);
    EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS,
           "a send over the established connection failed");
    wait_event(end->request);

    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_ABRUPT_FLAG));
    wait_event(end->connect);
    wait_event(end->connect);
    set_port_range(old_range);
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
