/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes posts, waits and control calls in threads whose stacks are small, and measures how much of
 * the stack each call needs.
 *
 * usage: small_stacks CONTROL_KIB POST_KIB
 *
 * Each step runs in a thread of its own, with a stack of CONTROL_KIB above a page that cannot be
 * accessed. Posts and waits run with POST_KIB. A step that needs more crashes.
 */
#include "dat_test.h"

#include <pthread.h>
#include <sys/mman.h>

#define PAINT 0xa5
#define PAGE 4096u

static struct end end;
static DAT_PSP_HANDLE psp;
static DAT_CR_HANDLE cr;
static DAT_EP_HANDLE server;
static DAT_EVD_HANDLE server_connect;
static DAT_EVENT event;
static DAT_COUNT more;
static DAT_CONN_QUAL qualifier;

static void nothing(void)
{
}

static void opens(void)
{
    end_open(&end, 4096, 4);
}

static void creates_endpoint(void)
{
    DAT_EP_ATTR attr = ep_attributes(4);

    OK(dat_evd_create(end.ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &server_connect));
    OK(dat_ep_create(end.ia, end.pz, end.recv, end.request, server_connect, &attr, &server));
}

static void listens(void)
{
    OK(dat_psp_create(end.ia, qualifier, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
}

static void queries(void)
{
    DAT_IA_ATTR ia;
    DAT_PROVIDER_ATTR provider;
    DAT_EP_PARAM ep;

    OK(dat_ia_query(end.ia, &end.async, DAT_IA_FIELD_ALL, &ia, DAT_PROVIDER_FIELD_ALL, &provider));
    OK(dat_ep_query(end.ep, DAT_EP_FIELD_ALL, &ep));
}

static void connects(void)
{
    DAT_IA_ATTR ia;

    OK(dat_ia_query(end.ia, &end.async, DAT_IA_FIELD_ALL, &ia, 0, NULL));
    OK(dat_ep_connect(end.ep, ia.ia_address_ptr, qualifier, WAIT_LIMIT, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
}

static void accepts(void)
{
    OK(dat_evd_wait(end.cr, WAIT_LIMIT, 1, &event, &more));
    cr = event.event_data.cr_arrival_event_data.cr_handle;
    OK(dat_cr_accept(cr, server, 0, NULL));
}

static void is_established(void)
{
    OK(dat_evd_wait(end.connect, WAIT_LIMIT, 1, &event, &more));
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED, "event %x", event.event_number);
    OK(dat_evd_wait(server_connect, WAIT_LIMIT, 1, &event, &more));
    EXPECT(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED, "event %x", event.event_number);
}

static DAT_LMR_TRIPLET local(void)
{
    DAT_LMR_TRIPLET part;

    memset(&part, 0, sizeof part);
    part.lmr_context = end.lmr_context;
    part.virtual_address = (DAT_VADDR)(uintptr_t)end.buffer;
    part.segment_length = 64;
    return part;
}

static void posts_receive(void)
{
    DAT_LMR_TRIPLET part = local();
    DAT_DTO_COOKIE cookie = {.as_64 = 1};

    OK(dat_ep_post_recv(server, 1, &part, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void posts_send(void)
{
    DAT_LMR_TRIPLET part = local();
    DAT_DTO_COOKIE cookie = {.as_64 = 2};

    OK(dat_ep_post_send(end.ep, 1, &part, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void posts_write_and_read(void)
{
    DAT_LMR_TRIPLET part = local();
    DAT_RMR_TRIPLET remote;
    DAT_DTO_COOKIE cookie = {.as_64 = 3};

    memset(&remote, 0, sizeof remote);
    remote.rmr_context = end.rmr_context;
    remote.virtual_address = (DAT_VADDR)(uintptr_t)end.buffer;
    remote.segment_length = 64;
    OK(dat_ep_post_rdma_write(end.ep, 1, &part, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_rdma_read(end.ep, 1, &part, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
}

static void waits(void)
{
    int completions;

    OK(dat_evd_wait(end.recv, WAIT_LIMIT, 1, &event, &more));
    for (completions = 0; completions < 3; completions++) {
        OK(dat_evd_wait(end.request, WAIT_LIMIT, 1, &event, &more));
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "failed");
    }
}

static void disconnects(void)
{
    OK(dat_ep_disconnect(end.ep, DAT_CLOSE_ABRUPT_FLAG));
    OK(dat_evd_wait(end.connect, WAIT_LIMIT, 1, &event, &more));
    OK(dat_evd_wait(server_connect, WAIT_LIMIT, 1, &event, &more));
}

static void resets(void)
{
    OK(dat_ep_reset(end.ep));
    OK(dat_ep_free(server));
    OK(dat_psp_free(psp));
    OK(dat_evd_free(server_connect));
}

static void closes(void)
{
    end_close(&end);
}

static void *call(void *step)
{
    (*(void (**)(void))step)();
    return NULL;
}

/* Runs a step in a thread with a stack of this size. Returns the number of octets that it used. */
static size_t stack_use(void (*step)(void), size_t size)
{
    pthread_attr_t attributes;
    pthread_t thread;
    unsigned char *stack;
    size_t untouched = 0;
    int status;

    stack = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(stack != MAP_FAILED, "no memory");
    EXPECT(mprotect(stack, PAGE, PROT_NONE) == 0, "mprotect: %s", strerror(errno));
    stack += PAGE;
    memset(stack, PAINT, size);
    pthread_attr_init(&attributes);
    status = pthread_attr_setstack(&attributes, stack, size);
    EXPECT(status == 0, "pthread_attr_setstack: %s", strerror(status));
    status = pthread_create(&thread, &attributes, call, &step);
    EXPECT(status == 0, "pthread_create: %s", strerror(status));
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    while (untouched < size && stack[untouched] == PAINT)
        untouched++;
    munmap(stack - PAGE, size + PAGE);
    return size - untouched;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*step)(void);
        bool is_post;
    } steps[] = {
        {"nothing", nothing, true},
        {"open", opens, false},
        {"create endpoint", creates_endpoint, false},
        {"listen", listens, false},
        {"query", queries, false},
        {"connect", connects, false},
        {"accept", accepts, false},
        {"established", is_established, true},
        {"post receive", posts_receive, true},
        {"post send", posts_send, true},
        {"post write and read", posts_write_and_read, true},
        {"wait", waits, true},
        {"disconnect", disconnects, false},
        {"post when ended", posts_receive, true},
        {"reset and free", resets, false},
        {"close", closes, false},
    };
    size_t i, control, post;

    EXPECT(argc == 3, "usage: small_stacks CONTROL_KIB POST_KIB");
    qualifier = free_port();
    control = strtoul(argv[1], NULL, 10) * 1024;
    post = strtoul(argv[2], NULL, 10) * 1024;
    for (i = 0; i < sizeof steps / sizeof *steps; i++) {
        printf("%-20s ", steps[i].name);
        fflush(stdout);
        printf("%zu octets\n", stack_use(steps[i].step, steps[i].is_post ? post : control));
    }
    puts("ok");
    return 0;
}
