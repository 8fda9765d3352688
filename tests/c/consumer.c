/*
 * Checks that programs can use the headers. The file calls every function once directly and, if the
 * headers have a macro for the function, once through the provider's table. The file is only
 * compiled. It is valid C99 and C++11 without warnings.
 */

#include <netinet/in.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

/* One object of each type, and arguments for the calls below. */
struct objects {
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE evd;
    DAT_CNO_HANDLE cno;
    DAT_CR_HANDLE cr;
    DAT_LMR_HANDLE lmr;
    DAT_RMR_HANDLE rmr;
    DAT_PSP_HANDLE psp;
    DAT_RSP_HANDLE rsp;
    DAT_CSP_HANDLE csp;
    DAT_SRQ_HANDLE srq;
    DAT_LMR_TRIPLET local[2];
    DAT_RMR_TRIPLET remote;
    DAT_LMR_CONTEXT lmr_context;
    DAT_RMR_CONTEXT rmr_context;
    DAT_VLEN length;
    DAT_VADDR address;
    DAT_COUNT count;
    DAT_CONN_QUAL conn_qual;
    DAT_EP_ATTR ep_attr;
    DAT_DTO_COOKIE cookie;
    char data[64];
};

/* The ways in which programs examine a status. */
static int failed(DAT_RETURN status)
{
    const char *major, *minor;

    if (status == DAT_SUCCESS || DAT_GET_TYPE(status) == DAT_TIMEOUT_EXPIRED ||
        DAT_IS_WARNING(status))
        return 0;
    dat_strerror(status, &major, &minor);
    return DAT_GET_SUBTYPE(status) != DAT_NO_SUBTYPE || (status & DAT_CLASS_ERROR) != 0;
}

int open_and_register(struct objects *o, DAT_NAME_PTR name)
{
    DAT_IA_ATTR ia_attr;
    DAT_PROVIDER_ATTR provider_attr;
    DAT_REGION_DESCRIPTION region;
    DAT_CONTEXT context;
    DAT_HANDLE_TYPE type;
    DAT_PZ_PARAM pz_param;
    DAT_LMR_PARAM lmr_param;
    DAT_RMR_PARAM rmr_param;
    DAT_HA_RELATIONSHIP relationship;
    DAT_PROVIDER_INFO info[4], *list[4];
    int bad = 0, i;

    for (i = 0; i < 4; i++)
        list[i] = &info[i];
    bad |= failed(dat_registry_list_providers(4, &o->count, list));
    bad |= failed(dat_registry_providers_related(name, info[0].ia_name, &relationship));

    o->evd = DAT_HANDLE_NULL;
    bad |= failed(dat_ia_open(name, 8, &o->evd, &o->ia));
    bad |= failed(dat_ia_query(o->ia, &o->evd, DAT_IA_FIELD_ALL, &ia_attr, DAT_PROVIDER_FIELD_ALL,
                               &provider_attr));
    bad |= ia_attr.max_rdma_read_per_ep < 1 || ia_attr.max_mtu_size < 1;
    bad |= provider_attr.evd_stream_merging_supported[2][3] == DAT_FALSE;
    context.as_64 = 1;
    bad |= failed(dat_set_consumer_context(o->ia, context));
    bad |= failed(dat_get_consumer_context(o->ia, &context));
    bad |= failed(dat_get_handle_type(o->ia, &type)) || type != DAT_HANDLE_TYPE_IA;

    bad |= failed(dat_pz_create(o->ia, &o->pz));
    bad |= failed(dat_pz_query(o->pz, DAT_PZ_FIELD_ALL, &pz_param));
    region.for_va = o->data;
    bad |= failed(dat_lmr_create(o->ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof(o->data), o->pz,
                                 DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &o->lmr, &o->lmr_context,
                                 &o->rmr_context, &o->length, &o->address));
    bad |= failed(dat_lmr_query(o->lmr, DAT_LMR_FIELD_ALL, &lmr_param));
    bad |= failed(dat_lmr_sync_rdma_read(o->ia, o->local, 1));
    bad |= failed(dat_lmr_sync_rdma_write(o->ia, o->local, 1));
    bad |= failed(dat_rmr_create(o->pz, &o->rmr));
    bad |= failed(dat_rmr_create_for_ep(o->pz, &o->rmr));
    bad |= failed(dat_rmr_query(o->rmr, DAT_RMR_FIELD_ALL, &rmr_param));
    bad |=
        failed(dat_rmr_bind(o->rmr, o->lmr, o->local, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA,
                            o->ep, o->cookie, DAT_COMPLETION_DEFAULT_FLAG, &o->rmr_context));
    return bad;
}

int make_events(struct objects *o)
{
    DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
    DAT_CNO_PARAM cno_param;
    DAT_EVD_PARAM evd_param;
    DAT_EVENT event;
    DAT_FD fd;
    int bad = 0;

    bad |= failed(dat_cno_create(o->ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &o->cno));
    bad |= failed(dat_cno_fd_create(o->ia, &fd, &o->cno));
    bad |= failed(dat_cno_modify_agent(o->cno, agent));
    bad |= failed(dat_cno_query(o->cno, DAT_CNO_FIELD_ALL, &cno_param));
    bad |= cno_param.proxy_type == DAT_PROXY_TYPE_FD && cno_param.proxy.fd != fd;
    bad |= failed(dat_cno_trigger(o->cno, &o->evd));
    bad |= failed(dat_cno_wait(o->cno, DAT_TIMEOUT_INFINITE, &o->evd));

    bad |= failed(dat_evd_create(o->ia, 8, o->cno,
                                 (DAT_EVD_FLAGS)(DAT_EVD_CR_FLAG | DAT_EVD_DTO_FLAG), &o->evd));
    bad |= failed(dat_evd_query(o->evd, DAT_EVD_FIELD_ALL, &evd_param));
    bad |= failed(dat_evd_modify_cno(o->evd, DAT_HANDLE_NULL));
    bad |= failed(dat_evd_enable(o->evd)) | failed(dat_evd_disable(o->evd));
    bad |= failed(dat_evd_set_unwaitable(o->evd)) | failed(dat_evd_clear_unwaitable(o->evd));
    bad |= failed(dat_evd_resize(o->evd, 16));
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = o;
    bad |= failed(dat_evd_post_se(o->evd, &event));
    bad |= failed(dat_evd_wait(o->evd, 1000, 1, &event, &o->count));
    bad |= failed(dat_evd_dequeue(o->evd, &event));

    switch (event.event_number) {
    case DAT_DTO_COMPLETION_EVENT:
        return bad | (event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS);
    case DAT_RMR_BIND_COMPLETION_EVENT:
        return bad | (event.event_data.rmr_completion_event_data.status != DAT_RMR_BIND_SUCCESS);
    case DAT_CONNECTION_REQUEST_EVENT:
        o->cr = event.event_data.cr_arrival_event_data.cr_handle;
        return bad | (event.event_data.cr_arrival_event_data.sp_handle.psp_handle != o->psp);
    case DAT_CONNECTION_EVENT_ESTABLISHED:
        return bad | (event.event_data.connect_event_data.ep_handle != o->ep);
    case DAT_ASYNC_ERROR_EVD_OVERFLOW:
        return bad | (event.event_data.asynch_error_event_data.reason == DAT_EVD_OVERFLOW_ERROR);
    default:
        return bad | (event.event_data.software_event_data.pointer != o);
    }
}

int connect_endpoints(struct objects *o, struct sockaddr_in *peer)
{
    const DAT_TIMEOUT second = 1000000;
    DAT_IA_ADDRESS_PTR address = (DAT_IA_ADDRESS_PTR)peer;
    DAT_EP_PARAM ep_param;
    DAT_EP_STATE state;
    DAT_BOOLEAN recv_idle, request_idle;
    DAT_SRQ_ATTR srq_attr;
    DAT_SRQ_PARAM srq_param;
    DAT_PSP_PARAM psp_param;
    DAT_RSP_PARAM rsp_param;
    DAT_CSP_PARAM csp_param;
    DAT_CR_PARAM cr_param;
    DAT_COMM comm = {AF_INET, SOCK_STREAM, 0};
    int bad = 0;

    srq_attr.max_recv_dtos = 8;
    srq_attr.max_recv_iov = 1;
    srq_attr.low_watermark = DAT_SRQ_LW_DEFAULT;
    bad |= failed(dat_srq_create(o->ia, o->pz, &srq_attr, &o->srq));
    bad |= failed(dat_srq_query(o->srq, DAT_SRQ_FIELD_ALL, &srq_param));
    bad |= failed(dat_srq_resize(o->srq, 16)) | failed(dat_srq_set_lw(o->srq, 2));
    bad |= failed(dat_srq_post_recv(o->srq, 1, o->local, o->cookie));

    bad |= failed(dat_ep_create(o->ia, o->pz, o->evd, o->evd, o->evd, NULL, &o->ep));
    bad |= failed(
        dat_ep_create_with_srq(o->ia, o->pz, o->evd, o->evd, o->evd, o->srq, &o->ep_attr, &o->ep));
    bad |= failed(dat_ep_query(o->ep, DAT_EP_FIELD_ALL, &ep_param));
    bad |= failed(dat_ep_modify(o->ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &ep_param));
    bad |= failed(dat_ep_get_status(o->ep, &state, &recv_idle, &request_idle)) ||
           state == DAT_EP_STATE_ERROR;
    bad |= failed(dat_ep_recv_query(o->ep, &o->count, &o->count));
    bad |= failed(dat_ep_set_watermark(o->ep, DAT_HW_DEFAULT, DAT_WATERMARK_INFINITE));

    bad |= failed(dat_psp_create(o->ia, 4711, o->evd, DAT_PSP_CONSUMER_FLAG, &o->psp));
    bad |= failed(dat_psp_create_any(o->ia, &o->conn_qual, o->evd, DAT_PSP_PROVIDER_FLAG, &o->psp));
    bad |= failed(dat_psp_query(o->psp, DAT_PSP_FIELD_ALL, &psp_param));
    bad |= failed(dat_rsp_create(o->ia, 4712, o->ep, o->evd, &o->rsp));
    bad |= failed(dat_rsp_query(o->rsp, DAT_RSP_FIELD_ALL, &rsp_param));
    bad |= failed(dat_csp_create(o->ia, &comm, address, o->evd, &o->csp));
    bad |= failed(dat_csp_query(o->csp, DAT_CSP_FIELD_ALL, &csp_param));

    bad |= failed(dat_ep_connect(o->ep, address, o->conn_qual, second, 2, o->data,
                                 DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    bad |= failed(dat_ep_dup_connect(o->ep, o->ep, second, 0, NULL, DAT_QOS_BEST_EFFORT));
    bad |= failed(dat_ep_common_connect(o->ep, address, second, 0, NULL));
    bad |= failed(dat_cr_query(o->cr, DAT_CR_FIELD_ALL, &cr_param));
    bad |= failed(dat_cr_accept(o->cr, o->ep, 2, o->data)) | failed(dat_cr_reject(o->cr, 0, NULL));
    bad |= failed(dat_cr_handoff(o->cr, o->conn_qual));
    bad |= failed(dat_ep_disconnect(o->ep, DAT_CLOSE_GRACEFUL_FLAG)) | failed(dat_ep_reset(o->ep));
    return bad;
}

int transfer(struct objects *o)
{
    const DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    int bad = 0;

    bad |= failed(dat_ep_post_recv(o->ep, 2, o->local, o->cookie, flags));
    bad |= failed(dat_ep_post_send(o->ep, 2, o->local, o->cookie, flags));
    bad |= failed(dat_ep_post_send_with_invalidate(o->ep, 1, o->local, o->cookie, flags, DAT_TRUE,
                                                   o->rmr_context));
    bad |= failed(dat_ep_post_rdma_read(o->ep, 1, o->local, o->cookie, &o->remote, flags));
    bad |= failed(dat_ep_post_rdma_read_to_rmr(o->ep, &o->remote, o->cookie, &o->remote, flags));
    bad |= failed(dat_ep_post_rdma_write(o->ep, 1, o->local, o->cookie, &o->remote, flags));
    return bad;
}

int extensions(struct objects *o, const DAT_EVENT *event)
{
    const DAT_IB_EXTENSION_EVENT_DATA *payload =
        (const DAT_IB_EXTENSION_EVENT_DATA *)event->event_extension_data;
    DAT_IB_ADDR_HANDLE peer = payload->remote_ah;
    DAT_UINT64 counters[DCNT_IA_ALL_COUNTERS];
    DAT_CONTEXT context = payload->context;
    DAT_IA_ATTR ia_attr;
    DAT_PROVIDER_ATTR provider_attr;
    const DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    const char *text;
    int bad = 0;

    bad |= failed(dat_extension_op(o->ep, DAT_IB_UD_AH_FREE_OP, &peer));
    bad |= failed(dat_ib_post_fetch_and_add(o->ep, 1, o->local, o->cookie, &o->remote, flags));
    bad |= failed(dat_ib_post_cmp_and_swap(o->ep, 0, 1, o->local, o->cookie, &o->remote, flags));
    bad |= failed(dat_ib_post_rdma_write_immed(o->ep, 1, o->local, o->cookie, &o->remote,
                                               payload->val.immed.data, flags));
    bad |= failed(dat_ib_post_send_ud(o->ep, 1, o->local, &peer, o->cookie, flags));
    bad |= failed(dat_ib_post_recv_ud(o->ep, 1, o->local, o->cookie, flags));
    bad |=
        failed(dat_ib_ud_cm_free(o->ep, context.as_ptr)) | failed(dat_ib_ud_ah_free(o->ep, &peer));
    bad |= failed(dat_ib_query_counters(o->ep, DCNT_EP_ALL_COUNTERS, counters, 0));
    bad |= failed(dat_ib_print_counters(o->ep, DCNT_EP_ALL_COUNTERS, 1));
    bad |= failed(dat_query_counters(o->ia, DCNT_IA_CM_LISTEN, counters, 0));
    bad |= failed(dat_print_counters(o->evd, DCNT_EVD_WAIT, 1));
    bad |= failed(dat_ib_open_query("ib0", &o->ia, DAT_IA_FIELD_ALL, &ia_attr,
                                    DAT_PROVIDER_FIELD_ALL, &provider_attr));
    bad |= failed(dat_ib_close_query(o->ia));
    bad |= failed(dat_strerror_extension(DAT_IB_ERR, &text)) |
           failed(dat_strerror_ext_status(payload->status, &text));
#ifdef OFED_HEADERS /* OFED's counter macros use this undeclared type */
    typedef DAT_IA_COUNTER_TYPE DAT_COUNTER_TYPE;
#endif
    bad |= failed(dat_ib_start_counter(o->ia, DCNT_IA_CM)) |
           failed(dat_ib_stop_counter(o->ia, DCNT_IA_CM));
    return bad;
}

int collectives(struct objects *o, const DAT_EVENT *event)
{
    const DAT_IB_EXTENSION_EVENT_DATA *payload =
        (const DAT_IB_EXTENSION_EVENT_DATA *)event->event_extension_data;
    const DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    const DAT_IB_COLLECTIVE_REDUCE_DATA_OP sum = DAT_IB_COLLECTIVE_REDUCE_OP_SUM;
    const DAT_IB_COLLECTIVE_DATA_TYPE u64 = DAT_IB_COLLECTIVE_TYPE_UINT64;
    DAT_CONTEXT context = payload->context;
    DAT_HANDLE group = payload->coll.handle;
    DAT_IB_COLLECTIVE_MEMBER member;
    DAT_IB_COLLECTIVE_GROUP all;
    DAT_UINT32 size;
    DAT_COUNT sizes[2] = {32, 32}, places[2] = {0, 32};
    char *in = o->data, *out = o->data;
    int bad = 0;

    all.local_size = 2;
    bad |= failed(dat_ib_collective_create_member(o->ia, DAT_HANDLE_NULL, &member, &size));
    bad |= failed(dat_ib_collective_create_group(&member, 2, 0, 7, &all, o->evd, o->pz, context));
    bad |= failed(dat_ib_collective_scatter(group, in, 64, out, 32, 0, context, flags));
    bad |= failed(dat_ib_collective_scatterv(group, in, sizes, places, out, 32, 0, context, flags));
    bad |= failed(dat_ib_collective_gather(group, in, 32, out, 64, 0, context, flags));
    bad |= failed(dat_ib_collective_allgather(group, in, 32, out, 64, context, flags));
    bad |= failed(dat_ib_collective_allgatherv(group, in, 32, out, sizes, places, context, flags));
    bad |= failed(dat_ib_collective_alltoall(group, in, 64, out, 64, context, flags));
    bad |= failed(dat_ib_collective_reduce(group, in, 64, out, 64, sum, u64, 0, context, flags));
    bad |= failed(dat_ib_collective_allreduce(group, in, 64, out, 64, sum, u64, context, flags));
    bad |= failed(
        dat_ib_collective_reduce_scatter(group, in, 64, out, sizes, sum, u64, context, flags));
    bad |= failed(dat_ib_collective_scan(group, in, 64, out, 64, sum, u64, context, flags));
    bad |= failed(dat_ib_collective_barrier(group, context, flags));
    bad |= failed(dat_ib_collective_broadcast(group, in, 64, 0, context, flags));
#ifndef OFED_HEADERS /* OFED's macros use undeclared names or lack a parenthesis */
    DAT_UINT64 clock;
    bad |= failed(dat_ib_collective_set_clock(group, 1, context)) |
           failed(dat_ib_collective_read_clock(group, &clock));
    bad |= failed(dat_ib_collective_gatherv(group, in, 32, out, sizes, places, 0, context, flags));
    bad |= failed(
        dat_ib_collective_alltoallv(group, in, sizes, places, out, sizes, places, context, flags));
#endif
    bad |= failed(dat_ib_collective_free_group(group)) |
           failed(dat_ib_collective_free_member(o->ia, member));
    return bad;
}

int through_the_table(struct objects *o, DAT_EVENT *event)
{
    const DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    DAT_IA_HANDLE ia = o->ia;
    int bad = 0;

#ifndef OFED_HEADERS /* OFED exports the function but does not declare it */
    bad |= failed(dats_get_ia_handle(o->ia, &ia));
#endif
    bad |= failed(DAT_PZ_CREATE(ia, &o->pz));
    bad |= failed(DAT_EP_POST_SEND(o->ep, 1, o->local, o->cookie, flags));
    bad |= failed(DAT_EP_POST_RDMA_WRITE(o->ep, 1, o->local, o->cookie, &o->remote, flags));
    bad |= failed(DAT_EVD_DEQUEUE(o->evd, event)) |
           failed(DAT_EVD_WAIT(o->evd, 1000, 1, event, &o->count));
    bad |= failed(DAT_EP_FREE(o->ep));
    return bad;
}

int destroy(struct objects *o)
{
    return failed(dat_ep_free(o->ep)) | failed(dat_srq_free(o->srq)) |
           failed(dat_psp_free(o->psp)) | failed(dat_rsp_free(o->rsp)) |
           failed(dat_csp_free(o->csp)) | failed(dat_rmr_free(o->rmr)) |
           failed(dat_lmr_free(o->lmr)) | failed(dat_pz_free(o->pz)) |
           failed(dat_evd_free(o->evd)) | failed(dat_cno_free(o->cno)) |
           failed(dat_ia_close(o->ia, DAT_CLOSE_DEFAULT));
}

/* The provider's side: the functions that a loadable provider defines, and those that it calls. */

static DAT_PROVIDER table;

#ifdef __cplusplus
extern "C" {
#endif
void DAT_PROVIDER_INIT_FUNC_NAME(const DAT_PROVIDER_INFO *info, const char *instance_data);
void DAT_PROVIDER_FINI_FUNC_NAME(const DAT_PROVIDER_INFO *info);
#ifdef __cplusplus
}
#endif

void DAT_PROVIDER_INIT_FUNC_NAME(const DAT_PROVIDER_INFO *info, const char *instance_data)
{
    table.device_name = instance_data;
    dat_registry_add_provider(&table, info);
}

void DAT_PROVIDER_FINI_FUNC_NAME(const DAT_PROVIDER_INFO *info)
{
    dat_registry_remove_provider(&table, info);
}
