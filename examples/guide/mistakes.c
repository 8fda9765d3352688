/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes one of the ten most common mistakes, and prints what a program sees of it.
 *
 *   mistakes MISTAKE [IA [mended]]
 *
 * Both ends of the connection are in this process. With `mended`, the program does the same without
 * the mistake. docs/guide.md explains the mistakes.
 */

#include "guide.h"

enum { SIZE = 64, DEPTH = 64, FIVE_SECONDS = 5 * 1000000 };

/* One end of the connection. */
struct end {
    const char *name;
    DAT_EVD_HANDLE requests; /* completions of sends, RDMA writes and RDMA reads */
    DAT_EVD_HANDLE events;   /* everything else */
    DAT_EP_HANDLE ep;
    struct region region;
    char memory[SIZE];
};

static struct end client = {.name = "client"}, server = {.name = "server"};
static DAT_PSP_HANDLE psp;
static DAT_CONN_QUAL qualifier;
static bool mended;

static void create_end(struct end *end, DAT_COUNT queue_length, DAT_MEM_PRIV_FLAGS privileges)
{
    DAT_EVD_FLAGS streams = DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_DTO_FLAG;

    check("dat_evd_create",
          dat_evd_create(ia, queue_length, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &end->requests));
    check("dat_evd_create", dat_evd_create(ia, 2 * DEPTH, DAT_HANDLE_NULL, streams, &end->events));
    check("dat_ep_create",
          dat_ep_create(ia, pz, end->events, end->requests, end->events, NULL, &end->ep));
    end->region = register_memory(end->memory, SIZE, privileges);
}

static void create_ends(DAT_COUNT queue_length, DAT_MEM_PRIV_FLAGS privileges_of_server)
{
    create_end(&client, queue_length, LOCAL);
    create_end(&server, DEPTH, privileges_of_server);
    check("dat_psp_create_any",
          dat_psp_create_any(ia, &qualifier, server.events, DAT_PSP_CONSUMER_FLAG, &psp));
}

static DAT_RETURN request_connection(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    return dat_ep_connect(client.ep, (DAT_IA_ADDRESS_PTR)&address, qualifier, CONNECT_LIMIT, 0,
                          NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
}

static void establish_connection(void)
{
    DAT_EVENT event = next_event(server.events);

    expect(&event, DAT_CONNECTION_REQUEST_EVENT);
    check("dat_cr_accept",
          dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, server.ep, 0, NULL));
    event = next_event(server.events);
    expect(&event, DAT_CONNECTION_EVENT_ESTABLISHED);
    event = next_event(client.events);
    expect(&event, DAT_CONNECTION_EVENT_ESTABLISHED);
}

static void connect_ends(void)
{
    check("dat_ep_connect", request_connection());
    establish_connection();
}

static void post_receive(struct end *end, size_t size)
{
    DAT_LMR_TRIPLET buffer = part(&end->region, 0, size);

    check("dat_ep_post_recv", dat_ep_post_recv(end->ep, 1, &buffer, (DAT_DTO_COOKIE){.as_64 = 0},
                                               DAT_COMPLETION_DEFAULT_FLAG));
}

static DAT_RETURN try_to_send(void)
{
    DAT_LMR_TRIPLET message = part(&client.region, 0, SIZE);

    return dat_ep_post_send(client.ep, 1, &message, (DAT_DTO_COOKIE){.as_64 = 1},
                            DAT_COMPLETION_DEFAULT_FLAG);
}

static DAT_RMR_TRIPLET memory_of_server(DAT_RMR_CONTEXT key)
{
    return (DAT_RMR_TRIPLET){
        .virtual_address = (uintptr_t)server.memory,
        .segment_length = SIZE,
        .rmr_context = key,
    };
}

static DAT_RETURN try_to_write(void)
{
    DAT_LMR_TRIPLET data = part(&client.region, 0, SIZE);
    DAT_RMR_TRIPLET remote = memory_of_server(server.region.remote_key);

    return dat_ep_post_rdma_write(client.ep, 1, &data, (DAT_DTO_COOKIE){.as_64 = 2}, &remote,
                                  DAT_COMPLETION_DEFAULT_FLAG);
}

static void read_server(DAT_RMR_CONTEXT key)
{
    DAT_LMR_TRIPLET answer = part(&client.region, 0, SIZE);
    DAT_RMR_TRIPLET remote = memory_of_server(key);

    check("dat_ep_post_rdma_read",
          dat_ep_post_rdma_read(client.ep, 1, &answer, (DAT_DTO_COOKIE){.as_64 = 3}, &remote,
                                DAT_COMPLETION_DEFAULT_FLAG));
}

static void print_status(const char *call, DAT_RETURN status)
{
    const char *type, *subtype;

    dat_strerror(status, &type, &subtype);
    printf("%s: 0x%08x %s", call, (unsigned)status, type);
    if (DAT_GET_SUBTYPE(status) != DAT_NO_SUBTYPE)
        printf(" %s", subtype);
    puts("");
}

static void print_completion(const struct end *end, const DAT_EVENT *event)
{
    static const char *const operations[] = {"receive", "send", "RDMA write", "RDMA read"};
    static const char *const names[] = {
        [DAT_DTO_SUCCESS] = "DAT_DTO_SUCCESS",
        [DAT_DTO_ERR_FLUSHED] = "DAT_DTO_ERR_FLUSHED",
        [DAT_DTO_ERR_LOCAL_LENGTH] = "DAT_DTO_ERR_LOCAL_LENGTH",
        [DAT_DTO_ERR_LOCAL_EP] = "DAT_DTO_ERR_LOCAL_EP",
        [DAT_DTO_ERR_LOCAL_PROTECTION] = "DAT_DTO_ERR_LOCAL_PROTECTION",
        [DAT_DTO_ERR_BAD_RESPONSE] = "DAT_DTO_ERR_BAD_RESPONSE",
        [DAT_DTO_ERR_REMOTE_ACCESS] = "DAT_DTO_ERR_REMOTE_ACCESS",
        [DAT_DTO_ERR_REMOTE_RESPONDER] = "DAT_DTO_ERR_REMOTE_RESPONDER",
        [DAT_DTO_ERR_TRANSPORT] = "DAT_DTO_ERR_TRANSPORT",
        [DAT_DTO_ERR_RECEIVER_NOT_READY] = "DAT_DTO_ERR_RECEIVER_NOT_READY",
    };
    const DAT_DTO_COMPLETION_EVENT_DATA *completion = &event->event_data.dto_completion_event_data;

    printf("%s: %s: status %d %s\n", end->name, operations[completion->user_cookie.as_64],
           completion->status, names[completion->status]);
}

static void print_event(const struct end *end, const DAT_EVENT *event)
{
    if (event->event_number == DAT_DTO_COMPLETION_EVENT)
        print_completion(end, event);
    else
        printf("%s: event 0x%04x %s\n", end->name, event->event_number,
               dat_event_name(event->event_number));
}

/* Waits for one completion, and prints it. */
static void show_completion(const struct end *end, DAT_EVD_HANDLE evd)
{
    DAT_EVENT event = next_event(evd);

    print_completion(end, &event);
}

/* Prints the completions that are in the queue. */
static void show_completions(const struct end *end, DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    DAT_RETURN status;

    while ((status = dat_evd_dequeue(evd, &event)) == DAT_SUCCESS)
        print_completion(end, &event);
    if (DAT_GET_TYPE(status) != DAT_QUEUE_EMPTY)
        print_status("dat_evd_dequeue", status);
}

/* Prints everything up to the end of the connection. All completions are queued before that. */
static void show(const struct end *end)
{
    DAT_EVENT event = next_event(end->events);

    for (; event.event_number == DAT_DTO_COMPLETION_EVENT; event = next_event(end->events))
        print_completion(end, &event);
    show_completions(end, end->requests);
    print_event(end, &event);
}

static void show_both(void)
{
    if (mended)
        check("dat_ep_disconnect", dat_ep_disconnect(client.ep, DAT_CLOSE_GRACEFUL_FLAG));
    show(&client);
    show(&server);
}

static void wait_for_end(const struct end *end)
{
    DAT_EVENT event = next_event(end->events);

    expect(&event, DAT_CONNECTION_EVENT_DISCONNECTED);
}

static void end_connection(void)
{
    check("dat_ep_disconnect", dat_ep_disconnect(client.ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_for_end(&client);
    wait_for_end(&server);
}

static void no_receive(void)
{
    DAT_TIMEOUT limit = mended ? DAT_TIMEOUT_INFINITE : FIVE_SECONDS;
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN status;

    create_ends(DEPTH, LOCAL);
    if (mended)
        post_receive(&server, SIZE);
    connect_ends();
    check("dat_ep_post_send", try_to_send());
    status = dat_evd_wait(server.events, limit, 1, &event, &more);
    if (status == DAT_SUCCESS) {
        print_event(&server, &event);
        return;
    }
    print_status("server: dat_evd_wait", status);
    show_completions(&client, client.requests);
    puts("server: now posts a receive");
    post_receive(&server, SIZE);
    show_completion(&server, server.events);
}

/* ANCHOR: short-receive */
static void short_receive(void)
{
    create_ends(DEPTH, LOCAL);
    post_receive(&server, mended ? SIZE : SIZE / 2);
    connect_ends();
    check("dat_ep_post_send", try_to_send()); /* a message of SIZE octets */
    show_both();
}
/* ANCHOR_END: short-receive */

/* ANCHOR: no-privilege */
static void no_privilege(void)
{
    create_ends(DEPTH, mended ? LOCAL | DAT_MEM_PRIV_REMOTE_WRITE_FLAG : LOCAL);
    connect_ends();
    check("dat_ep_post_rdma_write", try_to_write());
    show_both();
}
/* ANCHOR_END: no-privilege */

/* ANCHOR: stale-key */
static void stale_key(void)
{
    DAT_MEM_PRIV_FLAGS privileges = LOCAL | DAT_MEM_PRIV_REMOTE_READ_FLAG;
    DAT_RMR_CONTEXT key;

    create_ends(DEPTH, privileges);
    connect_ends();
    key = server.region.remote_key; /* what the client has been told */
    check("dat_lmr_free", dat_lmr_free(server.region.lmr));
    server.region = register_memory(server.memory, SIZE, privileges);
    read_server(mended ? server.region.remote_key : key);
    show_both();
}
/* ANCHOR_END: stale-key */

static void freed_memory(void)
{
    create_ends(DEPTH, LOCAL);
    post_receive(&server, SIZE);
    connect_ends();
    if (!mended) {
        check("dat_lmr_free", dat_lmr_free(server.region.lmr));
        server.region.lmr = DAT_HANDLE_NULL;
    }
    check("dat_ep_post_send", try_to_send());
    show_both();
}

static void too_early(void)
{
    create_ends(DEPTH, LOCAL);
    post_receive(&server, SIZE);
    check("dat_ep_connect", request_connection());
    if (mended)
        establish_connection(); /* waits for DAT_CONNECTION_EVENT_ESTABLISHED */
    print_status("dat_ep_post_send", try_to_send());
    if (!mended)
        establish_connection();
}

static void short_queue(void)
{
    enum { WRITES = 16 };
    DAT_EVENT event;

    create_ends(mended ? WRITES : WRITES / 4, LOCAL | DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    connect_ends();
    for (int i = 0; i < WRITES; i++)
        check("dat_ep_post_rdma_write", try_to_write());
    for (int i = 0; mended && i < WRITES; i++)
        show_completion(&client, client.requests);
    if (!mended) {
        event = next_event(async_evd);
        print_event(&client, &event);
        show_completions(&client, client.requests);
    }
}

static void full_queue(void)
{
    DAT_EVENT event;
    DAT_RETURN status;
    int posted = 0;

    create_ends(DEPTH, LOCAL | DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    connect_ends();
    while (posted < 2 * DEPTH) {
        status = try_to_write();
        if (mended && DAT_GET_TYPE(status) == DAT_INSUFFICIENT_RESOURCES) {
            event = next_event(client.requests); /* makes room for one more */
            expect(&event, DAT_DTO_COMPLETION_EVENT);
            continue;
        }
        if (status != DAT_SUCCESS)
            break;
        posted++;
    }
    printf("%d writes are posted\n", posted);
    print_status("dat_ep_post_rdma_write", status);
}

static void used_again(void)
{
    create_ends(DEPTH, LOCAL);
    connect_ends();
    end_connection();
    if (mended) {
        check("dat_ep_reset", dat_ep_reset(client.ep));
        check("dat_ep_reset", dat_ep_reset(server.ep));
    }
    print_status("dat_ep_connect", request_connection());
    if (mended)
        establish_connection();
    print_status("dat_ep_post_send", try_to_send());
    if (!mended)
        show_completion(&client, client.requests);
}

/* ANCHOR: whole-status */
static void whole_status(void)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN status;

    create_ends(DEPTH, LOCAL);
    status = dat_evd_wait(client.events, 0, 1, &event, &more);
    if (mended)
        status = DAT_GET_TYPE(status);
    print_status("dat_evd_wait", status);
    puts(status == DAT_TIMEOUT_EXPIRED ? "there is no event yet" : "dat_evd_wait has failed");
}
/* ANCHOR_END: whole-status */

static void free_end(struct end *end)
{
    check("dat_ep_free", dat_ep_free(end->ep));
    check("dat_evd_free", dat_evd_free(end->requests));
    check("dat_evd_free", dat_evd_free(end->events));
    if (end->region.lmr != DAT_HANDLE_NULL)
        check("dat_lmr_free", dat_lmr_free(end->region.lmr));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*make)(void);
    } mistakes[] = {
        {"no-receive", no_receive},     {"short-receive", short_receive},
        {"no-privilege", no_privilege}, {"stale-key", stale_key},
        {"freed-memory", freed_memory}, {"too-early", too_early},
        {"short-queue", short_queue},   {"full-queue", full_queue},
        {"used-again", used_again},     {"whole-status", whole_status},
    };
    const size_t count = sizeof mistakes / sizeof *mistakes;

    setvbuf(stdout, NULL, _IOLBF, 0);
    mended = argc == 4 && strcmp(argv[3], "mended") == 0;
    for (size_t i = 0; i < count && (argc == 2 || argc == 3 || mended); i++) {
        if (strcmp(argv[1], mistakes[i].name) != 0)
            continue;
        open_adapter(argc > 2 ? argv[2] : "tcp-emu");
        mistakes[i].make();
        check("dat_psp_free", dat_psp_free(psp));
        free_end(&client);
        free_end(&server);
        close_adapter();
        return 0;
    }
    fprintf(stderr, "usage: mistakes MISTAKE [IA [mended]]; a MISTAKE is\n");
    for (size_t i = 0; i < count; i++)
        fprintf(stderr, "  %s\n", mistakes[i].name);
    return 2;
}
