/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Passes every kind of wrong handle for every handle parameter of every function: null, small
 * integers, memory that is no object, memory that looks like an object, unmapped addresses, freed
 * objects, and objects of other types. Each call must answer DAT_INVALID_HANDLE with the subtype of
 * the parameter, must not crash, and must not change the live objects.
 */

#include "dat_test.h"

#include <setjmp.h>
#include <sys/mman.h>

enum kind { ANY, IA, PZ, LMR, RMR, EVD, CNO, EP, SRQ, PSP, RSP, CSP, CR, KINDS };

/*
 * The error subtype for each kind of object. A subtype of 0 is not checked: the standard has
 * several subtypes for an EVD, and none for a parameter that takes any object.
 */
static const DAT_RETURN SUBTYPE[KINDS] = {
    [IA] = DAT_INVALID_HANDLE_IA,   [PZ] = DAT_INVALID_HANDLE_PZ,   [LMR] = DAT_INVALID_HANDLE_LMR,
    [RMR] = DAT_INVALID_HANDLE_RMR, [CNO] = DAT_INVALID_HANDLE_CNO, [EP] = DAT_INVALID_HANDLE_EP,
    [SRQ] = DAT_INVALID_HANDLE_SRQ, [PSP] = DAT_INVALID_HANDLE_PSP, [RSP] = DAT_INVALID_HANDLE_RSP,
    [CSP] = DAT_INVALID_HANDLE_CSP, [CR] = DAT_INVALID_HANDLE_CR,
};

/* Live objects for the other parameters, and memory for the outputs. */
static struct end live;
static DAT_CNO_HANDLE live_cno;
static DAT_SRQ_HANDLE live_srq;
static DAT_PSP_HANDLE live_psp;

static struct {
    DAT_HANDLE handle;
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context;
    DAT_COUNT count, other_count;
    DAT_CONN_QUAL qualifier;
    DAT_EVENT event;
    DAT_IA_ATTR ia_attr;
    DAT_PROVIDER_ATTR provider_attr;
    DAT_PZ_PARAM pz;
    DAT_LMR_PARAM lmr;
    DAT_RMR_PARAM rmr;
    DAT_EVD_PARAM evd;
    DAT_CNO_PARAM cno;
    DAT_EP_PARAM ep;
    DAT_SRQ_PARAM srq;
    DAT_PSP_PARAM psp;
    DAT_RSP_PARAM rsp;
    DAT_CSP_PARAM csp;
    DAT_CR_PARAM cr;
    DAT_EP_STATE state;
    DAT_BOOLEAN idle, other_idle;
    DAT_LMR_CONTEXT lmr_context;
    DAT_RMR_CONTEXT rmr_context;
    DAT_VLEN length;
    DAT_VADDR address;
    DAT_FD fd;
} out;

static DAT_LMR_TRIPLET segment;
static DAT_RMR_TRIPLET remote;
static DAT_DTO_COOKIE cookie;
static DAT_EP_ATTR ep_attr;
static DAT_SRQ_ATTR srq_attr = {.max_recv_dtos = 4, .max_recv_iov = 1};
static DAT_REGION_DESCRIPTION region;
static DAT_COMM communicator;
static struct sockaddr_in loopback = {.sin_family = AF_INET};
#define ADDRESS ((DAT_IA_ADDRESS_PTR)&loopback)

/*
 * One line for each handle parameter. The line contains the name of the function and the parameter,
 * the kind of object that the parameter takes, the exception for this parameter (if there is one),
 * and the call with the wrong handle `h`.
 */
enum exception { STRICT, NULL_IS_FINE, MAY_BE_MISSING };

#define CALLS(X)                                                                                   \
    X(set_consumer_context, ANY, STRICT, dat_set_consumer_context(h, out.context))                 \
    X(get_consumer_context, ANY, STRICT, dat_get_consumer_context(h, &out.context))                \
    X(get_handle_type, ANY, STRICT, dat_get_handle_type(h, &out.type))                             \
    X(ia_query, IA, STRICT,                                                                        \
      dat_ia_query(h, &out.handle, DAT_IA_FIELD_ALL, &out.ia_attr, DAT_PROVIDER_FIELD_ALL,         \
                   &out.provider_attr))                                                            \
    X(ia_close, IA, STRICT, dat_ia_close(h, DAT_CLOSE_ABRUPT_FLAG))                                \
    X(pz_create, IA, STRICT, dat_pz_create(h, &out.handle))                                        \
    X(pz_query, PZ, STRICT, dat_pz_query(h, DAT_PZ_FIELD_ALL, &out.pz))                            \
    X(pz_free, PZ, STRICT, dat_pz_free(h))                                                         \
    X(lmr_create_IA, IA, STRICT,                                                                   \
      dat_lmr_create(h, DAT_MEM_TYPE_VIRTUAL, region, 64, live.pz, DAT_MEM_PRIV_ALL_FLAG,          \
                     DAT_VA_TYPE_VA, &out.handle, &out.lmr_context, &out.rmr_context, &out.length, \
                     &out.address))                                                                \
    X(lmr_create_PZ, PZ, STRICT,                                                                   \
      dat_lmr_create(live.ia, DAT_MEM_TYPE_VIRTUAL, region, 64, h, DAT_MEM_PRIV_ALL_FLAG,          \
                     DAT_VA_TYPE_VA, &out.handle, &out.lmr_context, &out.rmr_context, &out.length, \
                     &out.address))                                                                \
    X(lmr_query, LMR, STRICT, dat_lmr_query(h, DAT_LMR_FIELD_ALL, &out.lmr))                       \
    X(lmr_free, LMR, STRICT, dat_lmr_free(h))                                                      \
    X(lmr_sync_rdma_read, IA, STRICT, dat_lmr_sync_rdma_read(h, &segment, 1))                      \
    X(lmr_sync_rdma_write, IA, STRICT, dat_lmr_sync_rdma_write(h, &segment, 1))                    \
    X(rmr_create, PZ, STRICT, dat_rmr_create(h, &out.handle))                                      \
    X(rmr_create_for_ep, PZ, STRICT, dat_rmr_create_for_ep(h, &out.handle))                        \
    X(rmr_query, RMR, STRICT, dat_rmr_query(h, DAT_RMR_FIELD_ALL, &out.rmr))                       \
    X(rmr_bind, RMR, STRICT,                                                                       \
      dat_rmr_bind(h, live.lmr, &segment, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, live.ep, cookie,  \
                   DAT_COMPLETION_DEFAULT_FLAG, &out.rmr_context))                                 \
    X(rmr_free, RMR, STRICT, dat_rmr_free(h))                                                      \
    X(evd_create_IA, IA, STRICT,                                                                   \
      dat_evd_create(h, 4, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &out.handle))                        \
    X(evd_create_CNO, CNO, NULL_IS_FINE,                                                           \
      dat_evd_create(live.ia, 4, h, DAT_EVD_DTO_FLAG, &out.handle))                                \
    X(evd_query, EVD, STRICT, dat_evd_query(h, DAT_EVD_FIELD_ALL, &out.evd))                       \
    X(evd_modify_cno_EVD, EVD, STRICT, dat_evd_modify_cno(h, live_cno))                            \
    X(evd_modify_cno_CNO, CNO, NULL_IS_FINE, dat_evd_modify_cno(live.recv, h))                     \
    X(evd_enable, EVD, STRICT, dat_evd_enable(h))                                                  \
    X(evd_disable, EVD, STRICT, dat_evd_disable(h))                                                \
    X(evd_wait, EVD, STRICT, dat_evd_wait(h, 0, 1, &out.event, &out.count))                        \
    X(evd_resize, EVD, STRICT, dat_evd_resize(h, 16))                                              \
    X(evd_post_se, EVD, STRICT, dat_evd_post_se(h, &out.event))                                    \
    X(evd_dequeue, EVD, STRICT, dat_evd_dequeue(h, &out.event))                                    \
    X(evd_free, EVD, STRICT, dat_evd_free(h))                                                      \
    X(evd_set_unwaitable, EVD, STRICT, dat_evd_set_unwaitable(h))                                  \
    X(evd_clear_unwaitable, EVD, STRICT, dat_evd_clear_unwaitable(h))                              \
    X(cno_create, IA, STRICT, dat_cno_create(h, DAT_OS_WAIT_PROXY_AGENT_NULL, &out.handle))        \
    X(cno_fd_create, IA, MAY_BE_MISSING, dat_cno_fd_create(h, &out.fd, &out.handle))               \
    X(cno_modify_agent, CNO, STRICT, dat_cno_modify_agent(h, DAT_OS_WAIT_PROXY_AGENT_NULL))        \
    X(cno_query, CNO, STRICT, dat_cno_query(h, DAT_CNO_FIELD_ALL, &out.cno))                       \
    X(cno_wait, CNO, STRICT, dat_cno_wait(h, 0, &out.handle))                                      \
    X(cno_trigger, CNO, MAY_BE_MISSING, dat_cno_trigger(h, &out.handle))                           \
    X(cno_free, CNO, STRICT, dat_cno_free(h))                                                      \
    X(ep_create_IA, IA, STRICT,                                                                    \
      dat_ep_create(h, live.pz, live.recv, live.request, live.connect, &ep_attr, &out.handle))     \
    X(ep_create_PZ, PZ, NULL_IS_FINE,                                                              \
      dat_ep_create(live.ia, h, live.recv, live.request, live.connect, &ep_attr, &out.handle))     \
    X(ep_create_receive_EVD, EVD, NULL_IS_FINE,                                                    \
      dat_ep_create(live.ia, live.pz, h, live.request, live.connect, &ep_attr, &out.handle))       \
    X(ep_create_request_EVD, EVD, NULL_IS_FINE,                                                    \
      dat_ep_create(live.ia, live.pz, live.recv, h, live.connect, &ep_attr, &out.handle))          \
    X(ep_create_connect_EVD, EVD, NULL_IS_FINE,                                                    \
      dat_ep_create(live.ia, live.pz, live.recv, live.request, h, &ep_attr, &out.handle))          \
    X(ep_create_with_srq_IA, IA, STRICT,                                                           \
      dat_ep_create_with_srq(h, live.pz, live.recv, live.request, live.connect, live_srq,          \
                             &ep_attr, &out.handle))                                               \
    X(ep_create_with_srq_SRQ, SRQ, STRICT,                                                         \
      dat_ep_create_with_srq(live.ia, live.pz, live.recv, live.request, live.connect, h, &ep_attr, \
                             &out.handle))                                                         \
    X(ep_query, EP, STRICT, dat_ep_query(h, DAT_EP_FIELD_ALL, &out.ep))                            \
    X(ep_modify, EP, STRICT, dat_ep_modify(h, DAT_EP_FIELD_PZ_HANDLE, &out.ep))                    \
    X(ep_connect, EP, STRICT,                                                                      \
      dat_ep_connect(h, ADDRESS, 1, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT,                          \
                     DAT_CONNECT_DEFAULT_FLAG))                                                    \
    X(ep_dup_connect_EP, EP, STRICT,                                                               \
      dat_ep_dup_connect(h, live.ep, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT))                        \
    X(ep_dup_connect_to, EP, STRICT,                                                               \
      dat_ep_dup_connect(live.ep, h, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT))                        \
    X(ep_common_connect, EP, MAY_BE_MISSING, dat_ep_common_connect(h, ADDRESS, SECOND, 0, NULL))   \
    X(ep_disconnect, EP, STRICT, dat_ep_disconnect(h, DAT_CLOSE_ABRUPT_FLAG))                      \
    X(ep_get_status, EP, STRICT, dat_ep_get_status(h, &out.state, &out.idle, &out.other_idle))     \
    X(ep_recv_query, EP, MAY_BE_MISSING, dat_ep_recv_query(h, &out.count, &out.other_count))       \
    X(ep_set_watermark, EP, MAY_BE_MISSING, dat_ep_set_watermark(h, 1, 1))                         \
    X(ep_reset, EP, STRICT, dat_ep_reset(h))                                                       \
    X(ep_free, EP, STRICT, dat_ep_free(h))                                                         \
    X(ep_post_send, EP, STRICT,                                                                    \
      dat_ep_post_send(h, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG))                       \
    X(ep_post_recv, EP, STRICT,                                                                    \
      dat_ep_post_recv(h, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG))                       \
    X(ep_post_rdma_read, EP, STRICT,                                                               \
      dat_ep_post_rdma_read(h, 1, &segment, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG))         \
    X(ep_post_rdma_write, EP, STRICT,                                                              \
      dat_ep_post_rdma_write(h, 1, &segment, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG))        \
    X(ep_post_send_with_invalidate, EP, STRICT,                                                    \
      dat_ep_post_send_with_invalidate(h, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG,        \
                                       DAT_TRUE, 1))                                               \
    X(ep_post_rdma_read_to_rmr, EP, STRICT,                                                        \
      dat_ep_post_rdma_read_to_rmr(h, &remote, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG))      \
    X(srq_create_IA, IA, STRICT, dat_srq_create(h, live.pz, &srq_attr, &out.handle))               \
    X(srq_create_PZ, PZ, STRICT, dat_srq_create(live.ia, h, &srq_attr, &out.handle))               \
    X(srq_query, SRQ, STRICT, dat_srq_query(h, DAT_SRQ_FIELD_ALL, &out.srq))                       \
    X(srq_post_recv, SRQ, STRICT, dat_srq_post_recv(h, 1, &segment, cookie))                       \
    X(srq_resize, SRQ, MAY_BE_MISSING, dat_srq_resize(h, 8))                                       \
    X(srq_set_lw, SRQ, MAY_BE_MISSING, dat_srq_set_lw(h, 1))                                       \
    X(srq_free, SRQ, STRICT, dat_srq_free(h))                                                      \
    X(psp_create_IA, IA, STRICT,                                                                   \
      dat_psp_create(h, 1, live.cr, DAT_PSP_CONSUMER_FLAG, &out.handle))                           \
    X(psp_create_EVD, EVD, STRICT,                                                                 \
      dat_psp_create(live.ia, 23456, h, DAT_PSP_CONSUMER_FLAG, &out.handle))                       \
    X(psp_create_any, IA, STRICT,                                                                  \
      dat_psp_create_any(h, &out.qualifier, live.cr, DAT_PSP_CONSUMER_FLAG, &out.handle))          \
    X(psp_query, PSP, STRICT, dat_psp_query(h, DAT_PSP_FIELD_ALL, &out.psp))                       \
    X(psp_free, PSP, STRICT, dat_psp_free(h))                                                      \
    X(rsp_create_IA, IA, STRICT, dat_rsp_create(h, 23456, live.ep, live.cr, &out.handle))          \
    X(rsp_create_EP, EP, STRICT, dat_rsp_create(live.ia, 23456, h, live.cr, &out.handle))          \
    X(rsp_create_EVD, EVD, STRICT, dat_rsp_create(live.ia, 23456, live.ep, h, &out.handle))        \
    X(rsp_query, RSP, STRICT, dat_rsp_query(h, DAT_RSP_FIELD_ALL, &out.rsp))                       \
    X(rsp_free, RSP, STRICT, dat_rsp_free(h))                                                      \
    X(csp_create, IA, MAY_BE_MISSING,                                                              \
      dat_csp_create(h, &communicator, ADDRESS, live.cr, &out.handle))                             \
    X(csp_query, CSP, MAY_BE_MISSING, dat_csp_query(h, DAT_CSP_FIELD_ALL, &out.csp))               \
    X(csp_free, CSP, MAY_BE_MISSING, dat_csp_free(h))                                              \
    X(cr_query, CR, STRICT, dat_cr_query(h, DAT_CR_FIELD_ALL, &out.cr))                            \
    X(cr_accept, CR, STRICT, dat_cr_accept(h, live.ep, 0, NULL))                                   \
    X(cr_reject, CR, STRICT, dat_cr_reject(h, 0, NULL))                                            \
    X(cr_handoff, CR, MAY_BE_MISSING, dat_cr_handoff(h, 23456))

struct call {
    const char *name;
    enum kind kind;
    enum exception exception;
    DAT_RETURN (*function)(DAT_HANDLE);
};

#define DEFINE(name, kind, exception, ...)      \
    static DAT_RETURN call_##name(DAT_HANDLE h) \
    {                                           \
        return __VA_ARGS__;                     \
    }
CALLS(DEFINE)

#define ENTRY(name, kind, exception, ...) {#name, kind, exception, call_##name},
static const struct call calls[] = {CALLS(ENTRY)};

struct wrong {
    const char *name;
    DAT_HANDLE handle;
    enum kind live_as; /* The live object's kind, or KINDS if there is no object. */
};

static sigjmp_buf crash;

static void crashed(int signal)
{
    (void)signal;
    siglongjmp(crash, 1);
}

static bool acceptable(const struct call *call, DAT_RETURN status)
{
    DAT_RETURN type = DAT_GET_TYPE(status);
    if (call->exception == MAY_BE_MISSING &&
        (type == DAT_NOT_IMPLEMENTED || type == DAT_MODEL_NOT_SUPPORTED))
        return true;
    if (type != DAT_INVALID_HANDLE)
        return false;
    return SUBTYPE[call->kind] == 0 || DAT_GET_SUBTYPE(status) == SUBTYPE[call->kind];
}

/* Returns whether the handle is wrong for this parameter. */
static bool is_wrong(const struct call *call, const struct wrong *wrong)
{
    if (wrong->handle == DAT_HANDLE_NULL && call->exception == NULL_IS_FINE)
        return false;
    return wrong->live_as == KINDS || (call->kind != ANY && call->kind != wrong->live_as);
}

static int try_call(const struct call *call, const struct wrong *wrong)
{
    if (sigsetjmp(crash, 1)) {
        fprintf(stderr, "dat_%s with %s: crashed\n", call->name, wrong->name);
        return 1;
    }
    DAT_RETURN status = call->function(wrong->handle);
    if (acceptable(call, status))
        return 0;
    fprintf(stderr, "dat_%s with %s: %s\n", call->name, wrong->name, status_text(status));
    return 1;
}

/* Makes freed objects of each type and a closed adapter. Returns their number. */
static size_t make_stale(struct wrong *wrong)
{
    struct end stale;
    DAT_CNO_HANDLE cno;
    DAT_SRQ_HANDLE srq;
    DAT_PSP_HANDLE psp;

    end_open(&stale, 4096, 4);
    OK(dat_cno_create(stale.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_srq_create(stale.ia, stale.pz, &srq_attr, &srq));
    OK(dat_psp_create(stale.ia, free_port(), stale.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_cno_free(cno));
    OK(dat_srq_free(srq));
    OK(dat_psp_free(psp));
    struct wrong all[] = {
        {"a closed IA", stale.ia, KINDS},          {"a freed PZ", stale.pz, KINDS},
        {"a freed LMR", stale.lmr, KINDS},         {"a freed EP", stale.ep, KINDS},
        {"a freed EVD", stale.recv, KINDS},        {"a freed CNO", cno, KINDS},
        {"a freed SRQ", srq, KINDS},               {"a freed PSP", psp, KINDS},
        {"a closed async EVD", stale.async, KINDS},
    };
    end_close(&stale);
    memcpy(wrong, all, sizeof all);
    return sizeof all / sizeof *all;
}

static size_t make_others(struct wrong *wrong)
{
    static void *zeros[64], *garbage[64], *forged[64];
    void *unmapped = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    EXPECT(unmapped != MAP_FAILED, "mmap: %s", strerror(errno));
    memset(garbage, 0xa5, sizeof garbage);
    forged[0] = *(void **)live.pz; /* a real object also begins with this pointer to the table */
    struct wrong all[] = {
        {"null", DAT_HANDLE_NULL, KINDS},
        {"the number 3", (DAT_HANDLE)3, KINDS},
        {"the number 63", (DAT_HANDLE)63, KINDS},
        {"the number 64", (DAT_HANDLE)64, KINDS},
        {"the number 4095", (DAT_HANDLE)4095, KINDS},
        {"zeroed memory", zeros, KINDS},
        {"garbage memory", garbage, KINDS},
        {"a forged object", forged, KINDS},
        {"an address inside an object", (char *)live.ep + 8, KINDS},
        {"a misaligned address", (char *)live.ep + 1, KINDS},
        {"an unmapped address", unmapped, KINDS},
        {"a non-canonical address", (DAT_HANDLE)(uintptr_t)0xdeadbeefdeadbeef, KINDS},
        {"all ones", (DAT_HANDLE)UINTPTR_MAX, KINDS},
        {"a function", (DAT_HANDLE)(uintptr_t)&make_stale, KINDS},
        {"a live IA", live.ia, IA},
        {"a live PZ", live.pz, PZ},
        {"a live LMR", live.lmr, LMR},
        {"a live EVD", live.recv, EVD},
        {"a live CNO", live_cno, CNO},
        {"a live EP", live.ep, EP},
        {"a live SRQ", live_srq, SRQ},
        {"a live PSP", live_psp, PSP},
    };
    memcpy(wrong, all, sizeof all);
    return sizeof all / sizeof *all;
}

int main(void)
{
    struct wrong wrong[64];
    size_t count, tried = 0;
    int failures = 0;
    struct sigaction action = {.sa_handler = crashed};

    end_open(&live, 4096, 4);
    OK(dat_cno_create(live.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &live_cno));
    OK(dat_srq_create(live.ia, live.pz, &srq_attr, &live_srq));
    OK(dat_psp_create(live.ia, free_port(), live.cr, DAT_PSP_CONSUMER_FLAG, &live_psp));
    segment = local_segment(&live, 0, 64);
    region.for_va = live.buffer;
    ep_attr = ep_attributes(4);
    count = make_others(wrong);
    /*
     * The freed objects are made last, because an object that is created later could get the memory
     * and the handle of a freed one.
     */
    count += make_stale(wrong + count);

    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (size_t w = 0; w < count; w++)
            if (is_wrong(&calls[c], &wrong[w])) {
                failures += try_call(&calls[c], &wrong[w]);
                tried++;
            }
    EXPECT(failures == 0, "%d of %zu calls gave an answer that is not allowed", failures, tried);

    /*
     * The graceful close checks that all live objects still exist and that no call has created
     * another.
     */
    OK(dat_psp_free(live_psp));
    OK(dat_srq_free(live_srq));
    OK(dat_cno_free(live_cno));
    end_close(&live);
    printf("%zu calls with wrong handles\n", tried);
    puts("ok");
    return 0;
}
