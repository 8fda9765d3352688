/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread has no memory left, or little. Each call that creates something answers
 * DAT_INSUFFICIENT_RESOURCES, leaves nothing behind and can be repeated, whichever allocation is
 * the first that fails. A call that ends something needs no memory. Finally the adapter has no
 * objects left, so that a graceful close succeeds.
 *
 * The program replaces the C library's allocator. It allows this thread a given number of further
 * octets, and then fails until memory is freed.
 */

#define _GNU_SOURCE
#include "dat_test.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

/* ---- the allocator, which may be short of memory --------------------------------------------- */

static _Thread_local bool is_limited;
/*
 * `left` is how many octets this thread may still allocate. `wanted` is the budget with which the
 * first allocation that failed would have succeeded.
 */
static _Thread_local long left, wanted, budget;

/*
 * The C library's own allocator. glibc exports it under these names to programs that replace malloc
 * and the related functions.
 */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *place);

/*
 * Charges the budget for an allocation at `place`, which replaces an allocation of `old` octets. If
 * the budget does not suffice, frees `place` and returns NULL.
 */
static void *charge(void *place, long old)
{
    long size = (long)malloc_usable_size(place) - old;
    if (!is_limited || place == NULL)
        return place;
    if (size > left) {
        if (wanted == 0)
            wanted = budget - left + size;
        __libc_free(place);
        errno = ENOMEM;
        return NULL;
    }
    left -= size;
    return place;
}

void *malloc(size_t size)
{
    return charge(__libc_malloc(size), 0);
}

void *calloc(size_t count, size_t size)
{
    return charge(__libc_calloc(count, size), 0);
}

void *realloc(void *old, size_t size)
{
    long before = old ? (long)malloc_usable_size(old) : 0;
    if (is_limited && (long)size - before > left) {
        if (wanted == 0)
            wanted = budget - left + (long)size - before + 64;
        errno = ENOMEM;
        return NULL;
    }
    old = __libc_realloc(old, size);
    if (is_limited)
        left -= (long)malloc_usable_size(old) - before;
    return old;
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    *place = charge(__libc_memalign(alignment, size), 0);
    return *place ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return charge(__libc_memalign(alignment, size), 0);
}

void free(void *place)
{
    if (is_limited && place)
        left += (long)malloc_usable_size(place);
    __libc_free(place);
}

static void begin_limited(long octets)
{
    left = budget = octets;
    wanted = 0;
    is_limited = true;
}

/* No thread can be started, because there is no memory for its stack. */
static bool without_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
                   void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (without_threads)
        return EAGAIN;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attr, body, argument);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/*
 * Repeats a call with ever more memory, from none to enough. As long as an allocation fails, the
 * call must be refused for this reason. The call's name is printed first, so that the output of a
 * process that aborts ends with it.
 */
#define RETRY_UNTIL_ENOUGH_MEMORY(call)                                                            \
    do {                                                                                           \
        long octets_ = 0;                                                                          \
        int refused_ = 0;                                                                          \
        printf("%.60s\n", #call);                                                                  \
        fflush(stdout);                                                                            \
        for (;; refused_++) {                                                                      \
            DAT_RETURN status_;                                                                    \
            begin_limited(octets_);                                                                \
            status_ = (call);                                                                      \
            is_limited = false;                                                                    \
            if (status_ == DAT_SUCCESS)                                                            \
                break;                                                                             \
            EXPECT(DAT_GET_TYPE(status_) == DAT_INSUFFICIENT_RESOURCES, "%s with %ld octets: %s",  \
                   #call, octets_, status_text(status_));                                          \
            EXPECT(wanted > octets_, "%s with %ld octets, although no allocation failed: %s",      \
                   #call, octets_, status_text(status_));                                          \
            octets_ = wanted;                                                                      \
        }                                                                                          \
        refusals += refused_;                                                                      \
    } while (0)

/* A call that allocates memory, and that is refused at least once for lack of memory. */
#define NEEDS_MEMORY(call)                                           \
    do {                                                             \
        long before_ = refusals;                                     \
        RETRY_UNTIL_ENOUGH_MEMORY(call);                             \
        EXPECT(refusals > before_, "%s allocates no memory", #call); \
    } while (0)

/* A call that needs no memory. */
#define NEEDS_NO_MEMORY(call)                                                  \
    do {                                                                       \
        DAT_RETURN status_;                                                    \
        printf("%.60s\n", #call);                                              \
        fflush(stdout);                                                        \
        begin_limited(0);                                                      \
        status_ = (call);                                                      \
        is_limited = false;                                                    \
        EXPECT(status_ == DAT_SUCCESS, "%s: %s", #call, status_text(status_)); \
    } while (0)

static long refusals;

static void expect_no_memory(DAT_RETURN status, const char *what)
{
    EXPECT(DAT_GET_TYPE(status) == DAT_INSUFFICIENT_RESOURCES, "%s: %s", what, status_text(status));
}

enum { PROVIDERS = 32, REGIONS = 300, LONG = 4096, PRIVATE = 32 };

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE connections;
static bool starts_late;
static char private_data[PRIVATE];

/* Creates so many regions that the tables grow. */
static void regions(void)
{
    static char buffer[64];
    static DAT_LMR_HANDLE lmrs[REGIONS];
    DAT_REGION_DESCRIPTION region = {.for_va = buffer};
    DAT_LMR_CONTEXT context;
    DAT_RMR_CONTEXT remote;
    DAT_LMR_PARAM param;

    for (int i = 0; i < REGIONS; i++)
        NEEDS_MEMORY(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof buffer, pz,
                                    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmrs[i], &context,
                                    &remote, NULL, NULL));
    NEEDS_NO_MEMORY(dat_lmr_query(lmrs[0], DAT_LMR_FIELD_ALL, &param));
    for (int i = 0; i < REGIONS; i++)
        NEEDS_NO_MEMORY(dat_lmr_free(lmrs[i]));
}

/*
 * Creates a region that other processes may register by its name, and then a second region of the
 * first region's memory.
 */
static void named_region(void)
{
    enum { SIZE = 4096 };
    char name[DAT_LMR_COOKIE_SIZE];
    DAT_REGION_DESCRIPTION region, same;
    DAT_LMR_HANDLE shared, again;
    DAT_LMR_CONTEXT context;
    DAT_RMR_CONTEXT remote;

    memset(name, 0, sizeof name);
    snprintf(name, sizeof name, "no_memory %d", (int)getpid());
    memset(&region, 0, sizeof region);
    region.for_shared_memory.virtual_address =
        mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(region.for_shared_memory.virtual_address != MAP_FAILED, "mmap: %s", strerror(errno));
    region.for_shared_memory.shared_memory_id = (DAT_LMR_COOKIE)&name;
    NEEDS_MEMORY(dat_lmr_create(ia, DAT_MEM_TYPE_SHARED_VIRTUAL, region, SIZE, pz,
                                DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &shared, &context, &remote,
                                NULL, NULL));
    memset(&same, 0, sizeof same);
    same.for_lmr_handle = shared;
    NEEDS_MEMORY(dat_lmr_create(ia, DAT_MEM_TYPE_LMR, same, SIZE, pz, DAT_MEM_PRIV_ALL_FLAG,
                                DAT_VA_TYPE_VA, &again, &context, &remote, NULL, NULL));
    NEEDS_NO_MEMORY(dat_lmr_free(again));
    NEEDS_NO_MEMORY(dat_lmr_free(shared));
    munmap(region.for_shared_memory.virtual_address, SIZE);
}

static void dispatchers(void)
{
    DAT_CNO_HANDLE cno, other, watched;
    DAT_FD fd;
    DAT_CNO_PARAM cno_param;
    DAT_EVD_HANDLE evd, soft, took;
    DAT_EVD_PARAM param;
    DAT_EVENT event;

    NEEDS_MEMORY(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    NEEDS_MEMORY(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &other));
    NEEDS_MEMORY(dat_cno_fd_create(ia, &fd, &watched));
    NEEDS_NO_MEMORY(dat_cno_free(watched));
    NEEDS_MEMORY(dat_evd_create(ia, LONG, cno, DAT_EVD_DTO_FLAG, &evd));
    NEEDS_MEMORY(dat_evd_create(ia, LONG, cno, DAT_EVD_SOFTWARE_FLAG, &soft));
    RETRY_UNTIL_ENOUGH_MEMORY(dat_evd_resize(evd, 4 * LONG));
    RETRY_UNTIL_ENOUGH_MEMORY(dat_evd_resize(soft, 4 * LONG));
    RETRY_UNTIL_ENOUGH_MEMORY(dat_evd_modify_cno(evd, other));
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    for (int i = 0; i < LONG; i++) {
        event.event_data.software_event_data.pointer = &event;
        RETRY_UNTIL_ENOUGH_MEMORY(dat_evd_post_se(soft, &event));
    }
    RETRY_UNTIL_ENOUGH_MEMORY(dat_cno_wait(cno, 0, &took));
    EXPECT(took == soft, "the CNO names another EVD");
    for (int i = 0; i < LONG; i++)
        NEEDS_NO_MEMORY(dat_evd_dequeue(soft, &event));
    NEEDS_NO_MEMORY(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param));
    NEEDS_NO_MEMORY(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &cno_param));
    NEEDS_NO_MEMORY(dat_evd_disable(evd));
    NEEDS_NO_MEMORY(dat_evd_enable(evd));
    NEEDS_NO_MEMORY(dat_evd_set_unwaitable(evd));
    NEEDS_NO_MEMORY(dat_evd_clear_unwaitable(evd));
    NEEDS_NO_MEMORY(dat_evd_free(evd));
    NEEDS_NO_MEMORY(dat_evd_free(soft));
    NEEDS_NO_MEMORY(dat_cno_free(cno));
    NEEDS_NO_MEMORY(dat_cno_free(other));
}

static void shared_queues(DAT_EVD_HANDLE events)
{
    DAT_SRQ_ATTR attr = {.max_recv_dtos = LONG, .max_recv_iov = 4, .low_watermark = 0};
    DAT_EP_ATTR ep_attr = ep_attributes(LONG);
    DAT_SRQ_PARAM param;
    DAT_SRQ_HANDLE srq;
    DAT_EP_HANDLE ep;

    NEEDS_MEMORY(dat_srq_create(ia, pz, &attr, &srq));
    RETRY_UNTIL_ENOUGH_MEMORY(dat_srq_resize(srq, 4 * LONG));
    ep_attr.srq_soft_hw = DAT_HW_DEFAULT;
    NEEDS_MEMORY(dat_ep_create_with_srq(ia, pz, events, events, connections, srq, &ep_attr, &ep));
    NEEDS_NO_MEMORY(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
    NEEDS_NO_MEMORY(dat_ep_free(ep));
    NEEDS_NO_MEMORY(dat_srq_free(srq));
}

/* Binds windows and transfers data. */
static void transfers(DAT_EP_HANDLE from, DAT_EP_HANDLE to, DAT_EVD_HANDLE events)
{
    static char buffer[64];
    DAT_REGION_DESCRIPTION region = {.for_va = buffer};
    DAT_LMR_TRIPLET all = {.virtual_address = (DAT_VADDR)(uintptr_t)buffer,
                           .segment_length = sizeof buffer};
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_RMR_COOKIE bind = {.as_64 = 2};
    DAT_RMR_CONTEXT remote;
    DAT_RMR_PARAM param;
    DAT_RMR_HANDLE rmr, narrow;
    DAT_LMR_HANDLE lmr;

    OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof buffer, pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, &lmr, &all.lmr_context, &remote, NULL, NULL));
    NEEDS_MEMORY(dat_rmr_create(pz, &rmr));
    NEEDS_MEMORY(dat_rmr_create_for_ep(pz, &narrow));
    NEEDS_NO_MEMORY(dat_rmr_free(narrow));
    RETRY_UNTIL_ENOUGH_MEMORY(dat_rmr_bind(rmr, lmr, &all, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,
                                           from, bind, DAT_COMPLETION_DEFAULT_FLAG, &remote));
    wait_event(events);
    NEEDS_NO_MEMORY(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
    OK(dat_ep_post_recv(to, 1, &all, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_send(from, 1, &all, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    wait_event(events);
    wait_event(events);
    NEEDS_NO_MEMORY(dat_rmr_free(rmr));
    NEEDS_NO_MEMORY(dat_lmr_free(lmr));
}

static DAT_CR_HANDLE next_request(DAT_EVD_HANDLE requests)
{
    DAT_EVENT event = wait_event(requests);
    EXPECT(event.event_number == DAT_CONNECTION_REQUEST_EVENT, "event 0x%x", event.event_number);
    return event.event_data.cr_arrival_event_data.cr_handle;
}

static void expect_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event = wait_event(evd);
    EXPECT(event.event_number == number, "event 0x%x, not 0x%x", event.event_number, number);
}

/* Calls a common service point with an EP whose former attempt has failed. */
static void common_point(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR address, DAT_EVD_HANDLE requests)
{
    DAT_COMM tcp = {address->sa_family, SOCK_STREAM, IPPROTO_TCP};
    DAT_CSP_HANDLE csp;
    DAT_CSP_PARAM param;

    NEEDS_MEMORY(dat_csp_create(ia, &tcp, address, requests, &csp));
    NEEDS_NO_MEMORY(dat_csp_query(csp, DAT_CSP_FIELD_ALL, &param));
    OK(dat_ep_reset(ep));
    NEEDS_MEMORY(
        dat_ep_common_connect(ep, param.address_ptr, WAIT_LIMIT, PRIVATE, private_data));
    OK(dat_cr_reject(next_request(requests), 0, NULL));
    expect_event(connections, DAT_CONNECTION_EVENT_PEER_REJECTED);
    NEEDS_NO_MEMORY(dat_csp_free(csp));
}

static void endpoints(DAT_EVD_HANDLE events)
{
    struct sockaddr_storage address = peer_address();
    DAT_IA_ADDRESS_PTR to = (DAT_IA_ADDRESS_PTR)&address;
    DAT_EP_ATTR attr = ep_attributes(LONG);
    DAT_CONN_QUAL port = free_port(), any;
    DAT_EVD_HANDLE requests, accepted;
    DAT_EP_HANDLE near, far, third;
    DAT_PSP_HANDLE psp, other;
    DAT_PSP_PARAM psp_param;
    DAT_RSP_HANDLE rsp;
    DAT_CR_PARAM cr_param;
    DAT_EP_PARAM param;
    DAT_EP_STATE state;
    DAT_CR_HANDLE cr;

    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &accepted));
    NEEDS_MEMORY(dat_ep_create(ia, pz, events, events, connections, &attr, &near));
    NEEDS_MEMORY(dat_ep_create(ia, pz, events, events, accepted, &attr, &far));
    NEEDS_NO_MEMORY(dat_ep_query(near, DAT_EP_FIELD_ALL, &param));
    param.ep_attr.max_request_dtos = 2 * LONG;
    RETRY_UNTIL_ENOUGH_MEMORY(dat_ep_modify(near, DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS, &param));
    if (starts_late) {
        without_threads = true;
        expect_no_memory(dat_ep_connect(near, to, port, WAIT_LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
                                        DAT_CONNECT_DEFAULT_FLAG),
                         "dat_ep_connect without threads");
        expect_no_memory(dat_psp_create(ia, port, requests, DAT_PSP_CONSUMER_FLAG, &psp),
                         "dat_psp_create without threads");
        without_threads = false;
    }
    NEEDS_MEMORY(dat_psp_create(ia, port, requests, DAT_PSP_CONSUMER_FLAG, &psp));
    NEEDS_MEMORY(dat_psp_create_any(ia, &any, requests, DAT_PSP_CONSUMER_FLAG, &other));
    NEEDS_NO_MEMORY(dat_psp_query(psp, DAT_PSP_FIELD_ALL, &psp_param));

    NEEDS_MEMORY(dat_ep_connect(near, to, port, WAIT_LIMIT, PRIVATE, private_data,
                                DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    cr = next_request(requests);
    NEEDS_NO_MEMORY(dat_cr_query(cr, DAT_CR_FIELD_ALL, &cr_param));
    NEEDS_MEMORY(dat_cr_reject(cr, PRIVATE, private_data));
    expect_event(connections, DAT_CONNECTION_EVENT_PEER_REJECTED);
    RETRY_UNTIL_ENOUGH_MEMORY(dat_ep_reset(near));

    OK(dat_ep_connect(near, to, any, WAIT_LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    cr = next_request(requests);
    NEEDS_MEMORY(dat_cr_handoff(cr, port));
    cr = next_request(requests);
    NEEDS_MEMORY(dat_cr_accept(cr, far, PRIVATE, private_data));
    expect_event(connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect_event(accepted, DAT_CONNECTION_EVENT_ESTABLISHED);
    transfers(near, far, events);

    OK(dat_ep_create(ia, pz, events, events, connections, &attr, &third));
    NEEDS_MEMORY(
        dat_ep_dup_connect(third, near, WAIT_LIMIT, PRIVATE, private_data, DAT_QOS_BEST_EFFORT));
    OK(dat_cr_reject(next_request(requests), 0, NULL));
    expect_event(connections, DAT_CONNECTION_EVENT_PEER_REJECTED);

    NEEDS_NO_MEMORY(dat_ep_get_status(near, &state, NULL, NULL));
    NEEDS_MEMORY(dat_ep_disconnect(near, DAT_CLOSE_ABRUPT_FLAG));
    expect_event(connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    wait_event(accepted);
    RETRY_UNTIL_ENOUGH_MEMORY(dat_ep_reset(near));
    RETRY_UNTIL_ENOUGH_MEMORY(dat_ep_reset(far));
    NEEDS_NO_MEMORY(dat_psp_free(other));
    NEEDS_NO_MEMORY(dat_psp_free(psp));
    common_point(third, to, requests);
    NEEDS_MEMORY(dat_rsp_create(ia, free_port(), far, requests, &rsp));
    NEEDS_NO_MEMORY(dat_rsp_free(rsp));
    NEEDS_NO_MEMORY(dat_ep_free(near));
    NEEDS_NO_MEMORY(dat_ep_free(far));
    NEEDS_NO_MEMORY(dat_ep_free(third));
    NEEDS_NO_MEMORY(dat_evd_free(accepted));
    NEEDS_NO_MEMORY(dat_evd_free(requests));
}

int main(void)
{
    static DAT_PROVIDER_INFO records[PROVIDERS], *infos[PROVIDERS];
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, events;
    DAT_PROVIDER_ATTR provider;
    DAT_PZ_PARAM pz_param;
    DAT_IA_ATTR attr;
    char *name = ia_under_test();
    DAT_RETURN status;
    DAT_COUNT count;

    for (int i = 0; i < PROVIDERS; i++)
        infos[i] = &records[i];
    /*
     * A provider starts its progress thread either when an adapter opens or with the first
     * connection.
     */
    without_threads = true;
    status = dat_ia_open(name, 8, &async, &ia);
    without_threads = false;
    starts_late = status == DAT_SUCCESS;
    if (starts_late)
        OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    else
        expect_no_memory(status, "dat_ia_open without threads");
    async = DAT_HANDLE_NULL;
    NEEDS_MEMORY(dat_registry_list_providers(PROVIDERS, &count, infos));
    NEEDS_MEMORY(dat_ia_open(name, 8, &async, &ia));
    NEEDS_NO_MEMORY(
        dat_ia_query(ia, &async, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider));
    NEEDS_MEMORY(dat_pz_create(ia, &pz));
    NEEDS_NO_MEMORY(dat_pz_query(pz, DAT_PZ_FIELD_ALL, &pz_param));
    OK(dat_evd_create(ia, LONG, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG,
                      &events));
    OK(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connections));
    dispatchers();
    regions();
    named_region();
    shared_queues(events);
    endpoints(events);
    NEEDS_NO_MEMORY(dat_evd_free(connections));
    NEEDS_NO_MEMORY(dat_evd_free(events));
    NEEDS_NO_MEMORY(dat_pz_free(pz));
    RETRY_UNTIL_ENOUGH_MEMORY(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    printf("%ld refusals\n", refusals);
    puts("ok");
    return 0;
}
