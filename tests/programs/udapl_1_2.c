/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A consumer of uDAPL 1.2: makes each group of calls once, between two endpoints of one adapter,
 * and compares answers with the exact numbers of 1.2. The argument is `builtin` if the adapter's
 * provider is linked into the library, `plugin` if it is loaded.
 */

#include <dat/dat_registry.h>
#include <dat/udat.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The time limit of a wait for an event that must happen, in microseconds. It only ends a program
 * that would hang.
 */
#define WAIT_LIMIT 120000000u

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

/* Makes a call that must return exactly this status. */
#define ANSWERS(word, call)                                                                        \
    do {                                                                                           \
        DAT_RETURN status_ = (call);                                                               \
        if (status_ != (DAT_RETURN)(word)) {                                                       \
            fprintf(stderr, "%s:%d: %s: 0x%08x, not 0x%08x\n", __FILE__, __LINE__, #call, status_, \
                    (DAT_RETURN)(word));                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) ANSWERS(DAT_SUCCESS, call)

/* The numbers are written out, so that the test does not share a mistake with the headers. */
#define INVALID_ARGUMENT(n) (0x80060000 + 35 + (n))

static DAT_IA_HANDLE ia;
static DAT_PZ_HANDLE pz;
static DAT_EVD_HANDLE async_evd, recv_evd, request_evd, connect_evd, cr_evd;
static DAT_LMR_HANDLE lmr;
static DAT_LMR_CONTEXT lmr_context;
static DAT_RMR_CONTEXT rmr_context;
static _Alignas(4096) char memory[8192];

static DAT_EVENT next_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER expected)
{
    DAT_EVENT event;
    DAT_COUNT more;
    memset(&event, 0xee, sizeof event);
    OK(dat_evd_wait(evd, WAIT_LIMIT, 1, &event, &more));
    if (event.event_number != expected) {
        fprintf(stderr, "event 0x%x, not 0x%x\n", event.event_number, expected);
        exit(1);
    }
    EXPECT(event.evd_handle == evd);
    return event;
}

static void completes(DAT_EVD_HANDLE evd, DAT_EP_HANDLE ep, DAT_UINT64 cookie, DAT_VLEN length)
{
    DAT_DTO_COMPLETION_EVENT_DATA done =
        next_event(evd, DAT_DTO_COMPLETION_EVENT).event_data.dto_completion_event_data;
    EXPECT(done.ep_handle == ep);
    EXPECT(done.user_cookie.as_64 == cookie);
    EXPECT(done.status == DAT_DTO_SUCCESS);
    EXPECT(done.transfered_length == length);
}

static DAT_LMR_TRIPLET local(size_t offset, DAT_VLEN length)
{
    DAT_LMR_TRIPLET segment = {
        .lmr_context = lmr_context,
        .pad = 0xffffffff,
        .virtual_address = (DAT_VADDR)(uintptr_t)(memory + offset),
        .segment_length = length,
    };
    return segment;
}

static DAT_RMR_TRIPLET remote(size_t offset, DAT_VLEN length)
{
    DAT_RMR_TRIPLET segment = {
        .rmr_context = rmr_context,
        .pad = 0xffffffff,
        .target_address = (DAT_VADDR)(uintptr_t)(memory + offset),
        .segment_length = length,
    };
    return segment;
}

static char *ia_under_test(void)
{
    char *name = getenv("OPENDAT_TEST_IA");
    EXPECT(name != NULL);
    return name;
}

static void registry(bool builtin)
{
    DAT_PROVIDER_INFO infos[8], *list[8];
    DAT_COUNT count = -1, entries = -1;
    DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
    DAT_IA_HANDLE none;
    char *name = ia_under_test(), unknown[] = "no-such-ia";
    int found = 0, i;

    for (i = 0; i < 8; i++)
        list[i] = &infos[i];
    OK(dat_registry_list_providers(8, &entries, list));
    EXPECT(builtin ? entries >= 2 && entries % 2 == 0 : entries == 2);
    ANSWERS(INVALID_ARGUMENT(1), dat_registry_list_providers(0, &count, list));
    EXPECT(count == entries);
    ANSWERS(INVALID_ARGUMENT(2), dat_registry_list_providers(8, NULL, list));
    count = -1;
    ANSWERS(INVALID_ARGUMENT(3), dat_registry_list_providers(8, &count, NULL));
    EXPECT(count == entries);
    OK(dat_registry_list_providers(8, &count, list));
    EXPECT(count == entries);
    for (i = 0; i < count; i++)
        found += !strcmp(infos[i].ia_name, name) && infos[i].dapl_version_major == 1 &&
                 infos[i].dapl_version_minor == 2;
    EXPECT(found == (builtin ? 2 : 1)); /* one entry for each kind of thread safety */

    ANSWERS(INVALID_ARGUMENT(1), dat_ia_open(NULL, 8, &evd, &none));
    ANSWERS(INVALID_ARGUMENT(3), dat_ia_open(name, 8, NULL, &none));
    ANSWERS(0x8005000b, dat_ia_open(name, 8, &evd, NULL));
    ANSWERS(0x800a0062, dat_ia_open(unknown, 8, &evd, &none));
    ANSWERS(0x800a0063, dat_ia_openv(name, 8, &evd, &none, 2, 0, DAT_FALSE));
    ANSWERS(0x800a0064, dat_ia_openv(name, 8, &evd, &none, 1, 3, DAT_FALSE));
    if (!builtin)
        ANSWERS(0x800a0065, dat_ia_openv(name, 8, &evd, &none, 1, 2, DAT_TRUE));
    EXPECT(evd == DAT_HANDLE_NULL);
}

static void messages(void)
{
    static const struct {
        DAT_RETURN status;
        const char *type, *subtype;
    } texts[] = {
        {0, "DAT_SUCCESS", ""},
        {0x80060026, "DAT_INVALID_PARAMETER", "DAT_INVALID_ARG3"},
        {0x8005001a, "DAT_INVALID_HANDLE", "DAT_INVALID_HANDLE1"},
        {0x800a0062, "DAT_PROVIDER_NOT_FOUND", "DAT_NAME_NOT_REGISTERED"},
        {0x80070056, "DAT_INVALID_STATE", "DAT_INVALID_STATE_SRQ_IN_USE"},
        {0xffff0000, "DAT_NOT_IMPLEMENTED", ""},
        {0x80140000, "DAT_CONN_QUAL_UNAVAILABLE", ""},
    };
    const char *type, *subtype;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        OK(dat_strerror(texts[i].status, &type, &subtype));
        EXPECT(!strcmp(type, texts[i].type) && !strcmp(subtype, texts[i].subtype));
    }
    ANSWERS(INVALID_ARGUMENT(1), dat_strerror(0x80150000, &type, &subtype)); /* new in 2.0 */
    ANSWERS(INVALID_ARGUMENT(1), dat_strerror(102, &type, &subtype));
    ANSWERS(INVALID_ARGUMENT(2), dat_strerror(0, NULL, &subtype));
}

static void adapter(bool builtin)
{
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;
    DAT_IA_HANDLE object = NULL, back;
    DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;
    DAT_CONTEXT context = {.as_64 = 0x123456789abcdef0};
    DAT_HANDLE_TYPE type;
    char *name = ia_under_test();

    OK(dat_ia_open(name, 8, &async_evd, &ia));
    EXPECT((uintptr_t)ia == 1);
    OK(dats_get_ia_handle(ia, &object));
    EXPECT((uintptr_t)object > 65536);
    EXPECT(!strcmp(DAT_HANDLE_TO_PROVIDER(object)->device_name, name));
    OK(dats_get_ia_handle(object, &back));
    EXPECT(back == ia);
    ANSWERS(0x8005000b, dats_get_ia_handle((DAT_IA_HANDLE)2, &back));

    memset(&attr, 0xee, sizeof attr);
    memset(&provider, 0xee, sizeof provider);
    OK(dat_ia_query(ia, &evd, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider));
    EXPECT(evd == async_evd);
    EXPECT(attr.max_message_size >= 65536 && attr.max_message_size <= UINT32_MAX);
    EXPECT(attr.max_lmr_block_size >= 65536 && attr.max_rdma_size == attr.max_message_size);
    EXPECT(attr.max_eps > 0 && attr.max_srqs > 0 && attr.num_vendor_attr >= 0 &&
           attr.num_transport_attr >= 0);
    EXPECT(attr.ia_address_ptr != NULL);
    EXPECT(provider.dapl_version_major == 1 && provider.dapl_version_minor == 2);
    EXPECT(provider.is_thread_safe == DAT_FALSE && provider.pz_support == DAT_PZ_UNIQUE);
    EXPECT(provider.evd_stream_merging_supported[2][3] <= DAT_TRUE &&
           provider.num_provider_specific_attr >= 0);
    OK(dat_ia_query(ia, NULL, DAT_IA_FIELD_IA_VENDOR_ATTR, &attr, 0, NULL));
    ANSWERS(INVALID_ARGUMENT(3), dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL + 1, &attr, 0, NULL));
    ANSWERS(INVALID_ARGUMENT(4), dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, NULL, 0, NULL));
    ANSWERS(INVALID_ARGUMENT(5),
            dat_ia_query(ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL + 1, &provider));

    if (builtin) {
        DAT_EVD_HANDLE second_evd = DAT_HANDLE_NULL;
        DAT_IA_HANDLE second;
        OK(dat_ia_openv(name, 8, &second_evd, &second, 1, 2, DAT_TRUE));
        EXPECT((uintptr_t)second == 2);
        OK(dat_ia_query(second, NULL, 0, NULL, DAT_PROVIDER_FIELD_IS_THREAD_SAFE, &provider));
        EXPECT(provider.is_thread_safe == DAT_TRUE);
        OK(dat_ia_close(second, DAT_CLOSE_GRACEFUL_FLAG));
    }

    OK(dat_set_consumer_context(ia, context));
    context.as_64 = 0;
    OK(dat_get_consumer_context(ia, &context));
    EXPECT(context.as_64 == 0x123456789abcdef0);
    OK(dat_get_handle_type(ia, &type));
    EXPECT(type == DAT_HANDLE_TYPE_IA);
    ANSWERS(0x8005001a, dat_get_handle_type(DAT_HANDLE_NULL, &type));
    ANSWERS(INVALID_ARGUMENT(2), dat_get_handle_type(ia, NULL));

    OK(dat_pz_create(ia, &pz));
    {
        DAT_PZ_PARAM param;
        OK(dat_pz_query(pz, DAT_PZ_FIELD_ALL, &param));
        EXPECT(param.ia_handle == ia);
    }
}

static void dispatchers(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
    DAT_CNO_HANDLE cno;
    DAT_CNO_PARAM cno_param;
    DAT_EVD_PARAM evd_param;
    DAT_EVD_HANDLE evd;
    DAT_EVENT event, posted;
    DAT_COUNT more;

    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &recv_evd));
    OK(dat_evd_create(ia, 64, DAT_HANDLE_NULL,
                      (DAT_EVD_FLAGS)(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG), &request_evd));
    OK(dat_evd_create(ia, 16, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connect_evd));
    OK(dat_evd_create(ia, 16, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &cr_evd));

    OK(dat_cno_create(ia, agent, &cno));
    memset(&cno_param, 0xee, sizeof cno_param);
    OK(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &cno_param));
    EXPECT(cno_param.agent.proxy_agent_func == NULL && cno_param.agent.instance_data == NULL);
    OK(dat_cno_query(cno, DAT_CNO_FIELD_AGENT, &cno_param));
    ANSWERS(INVALID_ARGUMENT(2), dat_cno_query(cno, (DAT_CNO_PARAM_MASK)4, &cno_param));
    ANSWERS(INVALID_ARGUMENT(3), dat_cno_query(cno, DAT_CNO_FIELD_ALL, NULL));

    OK(dat_evd_create(ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    ANSWERS(0x80070042, dat_cno_free(cno)); /* in use */
    OK(dat_evd_resize(evd, 32));
    OK(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &evd_param));
    EXPECT(evd_param.evd_qlen >= 32 && evd_param.cno_handle == cno &&
           evd_param.evd_flags == DAT_EVD_SOFTWARE_FLAG);
    ANSWERS(0x000d0000, dat_evd_dequeue(evd, &event));
    ANSWERS(0x800f0000, dat_evd_wait(evd, 1000, 1, &event, &more)); /* time-out */
    memset(&posted, 0, sizeof posted);
    posted.event_number = DAT_SOFTWARE_EVENT;
    posted.event_data.software_event_data.pointer = &posted;
    OK(dat_evd_post_se(evd, &posted));
    ANSWERS(INVALID_ARGUMENT(2), dat_evd_post_se(evd, NULL));
    ANSWERS(INVALID_ARGUMENT(2), dat_evd_dequeue(evd, NULL));
    OK(dat_evd_dequeue(evd, &event));
    EXPECT(event.event_number == DAT_SOFTWARE_EVENT && event.evd_handle == evd);
    EXPECT(event.event_data.software_event_data.pointer == &posted);
    OK(dat_evd_set_unwaitable(evd));
    ANSWERS(0x80070048, dat_evd_wait(evd, 1000, 1, &event, &more));
    OK(dat_evd_clear_unwaitable(evd));
    OK(dat_evd_disable(evd));
    OK(dat_evd_enable(evd));
    OK(dat_evd_modify_cno(evd, DAT_HANDLE_NULL));
    OK(dat_evd_free(evd));
    OK(dat_cno_free(cno));
    ANSWERS(0x80050013, dat_cno_free(cno));
    ANSWERS(0x80050015, dat_evd_free(DAT_HANDLE_NULL));
}

static void regions(void)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_PARAM param;
    DAT_RMR_PARAM rmr_param;
    DAT_RMR_HANDLE rmr;
    DAT_RMR_CONTEXT bound;
    DAT_RMR_COOKIE cookie = {.as_64 = 1};
    DAT_LMR_TRIPLET segment;
    DAT_VLEN length;
    DAT_VADDR address;

    memset(&region, 0, sizeof region);
    region.for_va = memory;
    ANSWERS(INVALID_ARGUMENT(7),
            dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz,
                           DAT_MEM_PRIV_ALL_FLAG, NULL, NULL, NULL, NULL, NULL));
    ANSWERS(INVALID_ARGUMENT(2),
            dat_lmr_create(ia, (DAT_MEM_TYPE)77, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG,
                           &lmr, NULL, NULL, NULL, NULL));
    OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG,
                      &lmr, &lmr_context, &rmr_context, &length, &address));
    EXPECT(length >= sizeof memory && address <= (uintptr_t)memory);
    memset(&param, 0xee, sizeof param);
    OK(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param));
    EXPECT(param.lmr_context == lmr_context && param.rmr_context == rmr_context &&
           param.pz_handle == pz);
    EXPECT(param.length == sizeof memory && param.mem_priv == DAT_MEM_PRIV_ALL_FLAG &&
           param.region_desc.for_va == memory);
    EXPECT(param.registered_size == length && param.registered_address == address);
    OK(dat_lmr_query(lmr, DAT_LMR_FIELD_REGISTERED_ADDRESS, &param));
    ANSWERS(INVALID_ARGUMENT(2), dat_lmr_query(lmr, (DAT_LMR_PARAM_MASK)0x400, &param));
    ANSWERS(0x80070052, dat_pz_free(pz)); /* in use */

    segment = local(0, sizeof memory);
    OK(dat_lmr_sync_rdma_read(ia, &segment, 1));
    OK(dat_lmr_sync_rdma_write(ia, &segment, 1));
    OK(dat_lmr_sync_rdma_write(ia, NULL, 0));
    segment.segment_length = (DAT_VLEN)1 << 33;
    ANSWERS(INVALID_ARGUMENT(2), dat_lmr_sync_rdma_read(ia, &segment, 1));
    segment.segment_length = ~(DAT_VLEN)0;
    ANSWERS(INVALID_ARGUMENT(2), dat_lmr_sync_rdma_read(ia, &segment, 1));

    OK(dat_rmr_create(pz, &rmr));
    memset(&rmr_param, 0xee, sizeof rmr_param);
    OK(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &rmr_param));
    EXPECT(rmr_param.pz_handle == pz && rmr_param.lmr_triplet.segment_length == 0);
    ANSWERS(INVALID_ARGUMENT(2), dat_rmr_query(rmr, (DAT_RMR_PARAM_MASK)0x20, &rmr_param));
    /* The bind fails, because no region has this context. */
    segment = local(0, 64);
    segment.lmr_context = ~lmr_context;
    ANSWERS(INVALID_ARGUMENT(2),
            dat_rmr_bind(rmr, &segment, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_HANDLE_NULL, cookie,
                         DAT_COMPLETION_DEFAULT_FLAG, &bound));
    OK(dat_rmr_free(rmr));
    ANSWERS(0x8005000e, dat_rmr_bind(rmr, &segment, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_HANDLE_NULL,
                                     cookie, DAT_COMPLETION_DEFAULT_FLAG, &bound));
}

static DAT_EP_ATTR attributes(void)
{
    DAT_EP_ATTR attr;
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_message_size = 65536;
    attr.max_rdma_size = 65536;
    attr.max_recv_dtos = 8;
    attr.max_request_dtos = 8;
    attr.max_recv_iov = 2;
    attr.max_request_iov = 2;
    attr.max_rdma_read_in = 4;
    attr.max_rdma_read_out = 4;
    attr.max_rdma_read_iov = 1;
    attr.max_rdma_write_iov = 2;
    return attr;
}

static DAT_EP_HANDLE endpoint(void)
{
    DAT_EP_ATTR attr = attributes();
    DAT_EP_HANDLE ep;
    OK(dat_ep_create(ia, pz, recv_evd, request_evd, connect_evd, &attr, &ep));
    return ep;
}

static void endpoint_parameters(void)
{
    DAT_EP_ATTR attr = attributes();
    DAT_EP_HANDLE ep = endpoint(), other;
    DAT_EP_PARAM param;
    DAT_EP_STATE state;
    DAT_BOOLEAN recv_idle, request_idle;
    DAT_LMR_TRIPLET segment = local(0, 64);
    DAT_DTO_COOKIE cookie = {.as_64 = 0};

    attr.max_message_size = (DAT_VLEN)1 << 33;
    ANSWERS(INVALID_ARGUMENT(6),
            dat_ep_create(ia, pz, recv_evd, request_evd, connect_evd, &attr, &other));
    ANSWERS(INVALID_ARGUMENT(7),
            dat_ep_create(ia, pz, recv_evd, request_evd, connect_evd, NULL, NULL));
    OK(dat_ep_create(ia, pz, recv_evd, request_evd, connect_evd, NULL, &other));
    OK(dat_ep_free(other));

    memset(&param, 0xee, sizeof param);
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    EXPECT(param.ep_state == DAT_EP_STATE_UNCONNECTED && param.pz_handle == pz &&
           param.srq_handle == DAT_HANDLE_NULL);
    EXPECT(param.recv_evd_handle == recv_evd && param.request_evd_handle == request_evd);
    EXPECT(param.connect_evd_handle == connect_evd && param.local_ia_address_ptr != NULL);
    EXPECT(param.ep_attr.max_message_size == 65536 && param.ep_attr.max_recv_dtos >= 8);
    OK(dat_ep_query(ep, DAT_EP_FIELD_SRQ_HANDLE, &param));
    ANSWERS(INVALID_ARGUMENT(2), dat_ep_query(ep, 0x800, &param));
    ANSWERS(INVALID_ARGUMENT(3), dat_ep_query(ep, DAT_EP_FIELD_ALL, NULL));

    param.ep_attr.max_recv_dtos = 16;
    param.ep_attr.max_message_size = ~(DAT_VLEN)0; /* the mask lacks this field */
    OK(dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &param));
    ANSWERS(INVALID_ARGUMENT(3), dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE, &param));
    ANSWERS(INVALID_ARGUMENT(2), dat_ep_modify(ep, DAT_EP_FIELD_SRQ_HANDLE, &param));
    ANSWERS(INVALID_ARGUMENT(3), dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, NULL));
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    EXPECT(param.ep_attr.max_recv_dtos >= 16 && param.ep_attr.max_message_size == 65536);

    OK(dat_ep_get_status(ep, &state, &recv_idle, &request_idle));
    EXPECT(state == DAT_EP_STATE_UNCONNECTED && recv_idle && request_idle);
    ANSWERS(0x8007002e, dat_ep_post_send(ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    ANSWERS(0x80070049, dat_evd_free(connect_evd)); /* in use */
    OK(dat_ep_free(ep));
    ANSWERS(0x8005000c, dat_ep_free(ep));
}

static DAT_PSP_HANDLE listen_anywhere(DAT_CONN_QUAL *qualifier)
{
    DAT_PSP_HANDLE psp;
    DAT_PSP_PARAM param;
    OK(dat_psp_create_any(ia, qualifier, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_psp_query(psp, DAT_PSP_FIELD_ALL, &param));
    EXPECT(param.conn_qual == *qualifier && param.evd_handle == cr_evd &&
           param.psp_flags == DAT_PSP_CONSUMER_FLAG);
    return psp;
}

static void start(DAT_EP_HANDLE ep, DAT_CONN_QUAL qualifier, const char *greeting)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    OK(dat_ep_connect(ep, (DAT_IA_ADDRESS_PTR)&address, qualifier, WAIT_LIMIT,
                      (DAT_COUNT)strlen(greeting) + 1, (DAT_PVOID)greeting, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
}

static DAT_CR_HANDLE request(DAT_PSP_HANDLE psp, DAT_CONN_QUAL qualifier, const char *greeting)
{
    DAT_CR_ARRIVAL_EVENT_DATA arrival =
        next_event(cr_evd, DAT_CONNECTION_REQUEST_EVENT).event_data.cr_arrival_event_data;
    DAT_CR_PARAM param;
    EXPECT(arrival.sp_handle.psp_handle == psp && arrival.conn_qual == qualifier &&
           arrival.local_ia_address_ptr != NULL);
    OK(dat_cr_query(arrival.cr_handle, DAT_CR_FIELD_ALL, &param));
    EXPECT(param.private_data_size >= (DAT_COUNT)strlen(greeting) + 1 &&
           !strcmp(param.private_data, greeting));
    EXPECT(param.local_ep_handle == DAT_HANDLE_NULL);
    return arrival.cr_handle;
}

static void rejection(void)
{
    DAT_CONN_QUAL qualifier;
    DAT_PSP_HANDLE psp = listen_anywhere(&qualifier);
    DAT_EP_HANDLE ep = endpoint();
    DAT_CR_HANDLE cr;
    DAT_CONNECTION_EVENT_DATA event;

    start(ep, qualifier, "please");
    cr = request(psp, qualifier, "please");
    OK(dat_cr_reject(cr));
    event =
        next_event(connect_evd, DAT_CONNECTION_EVENT_PEER_REJECTED).event_data.connect_event_data;
    EXPECT(event.ep_handle == ep);
    /*
     * There is no private data. Some transports have no length for it and fill a whole field with
     * zeros.
     */
    for (DAT_COUNT i = 0; i < event.private_data_size; i++)
        EXPECT(((const char *)event.private_data)[i] == 0);
    ANSWERS(0x80050012, dat_cr_reject(cr));
    OK(dat_ep_free(ep));
    OK(dat_psp_free(psp));
}

static void connect_pair(DAT_EP_HANDLE active, DAT_EP_HANDLE passive)
{
    DAT_CONN_QUAL qualifier;
    DAT_PSP_HANDLE psp = listen_anywhere(&qualifier);
    DAT_CR_HANDLE cr;
    char answer[] = "welcome";
    bool seen[2] = {false, false};

    start(active, qualifier, "hello");
    cr = request(psp, qualifier, "hello");
    OK(dat_cr_accept(cr, passive, sizeof answer, answer));
    for (int i = 0; i < 2; i++) {
        DAT_CONNECTION_EVENT_DATA event =
            next_event(connect_evd, DAT_CONNECTION_EVENT_ESTABLISHED).event_data.connect_event_data;
        EXPECT(event.ep_handle == active || event.ep_handle == passive);
        seen[event.ep_handle == passive] = true;
        if (event.ep_handle == active)
            EXPECT(event.private_data_size >= (DAT_COUNT)sizeof answer &&
                   !strcmp(event.private_data, answer));
    }
    EXPECT(seen[0] && seen[1]);
    OK(dat_psp_free(psp));
}

static void disconnect_pair(DAT_EP_HANDLE active, DAT_EP_HANDLE passive)
{
    OK(dat_ep_disconnect(active, DAT_CLOSE_GRACEFUL_FLAG));
    next_event(connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(connect_evd, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(active));
    OK(dat_ep_free(passive));
}

static void transfers(void)
{
    const DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    DAT_EP_HANDLE active = endpoint(), passive = endpoint();
    DAT_LMR_TRIPLET iov[65], segment;
    DAT_RMR_TRIPLET target;
    DAT_DTO_COOKIE cookie;
    DAT_EP_STATE state;

    connect_pair(active, passive);
    OK(dat_ep_get_status(active, &state, NULL, NULL));
    EXPECT(state == DAT_EP_STATE_CONNECTED);

    /* This send has two segments. */
    segment = local(4096, 64);
    cookie.as_64 = 11;
    OK(dat_ep_post_recv(passive, 1, &segment, cookie, flags));
    strcpy(memory, "two ");
    strcpy(memory + 100, "segments");
    iov[0] = local(0, 4);
    iov[1] = local(100, 9);
    cookie.as_64 = 12;
    OK(dat_ep_post_send(active, 2, iov, cookie, flags));
    completes(request_evd, active, 12, 13);
    completes(recv_evd, passive, 11, 13);
    EXPECT(!strcmp(memory + 4096, "two segments"));

    /*
     * RDMA. The write goes through the provider's table, as some consumers call it. The target may
     * have a length of more than 32 bits.
     */
    strcpy(memory, "written");
    segment = local(0, 8);
    target = remote(2048, (DAT_VLEN)1 << 40);
    cookie.as_64 = 13;
    OK(DAT_EP_POST_RDMA_WRITE(active, 1, &segment, cookie, &target, flags));
    completes(request_evd, active, 13, 8);
    segment = local(1024, 8);
    target = remote(2048, 8);
    cookie.as_64 = 14;
    OK(dat_ep_post_rdma_read(active, 1, &segment, cookie, &target, flags));
    completes(request_evd, active, 14, 8);
    EXPECT(!strcmp(memory + 1024, "written") && !strcmp(memory + 2048, "written"));

    /* The provider must refuse the following operations. */
    segment = local(0, ((DAT_VLEN)1 << 32) + 8);
    ANSWERS(0x80080000, dat_ep_post_send(active, 1, &segment, cookie, flags));
    target = remote(0, ((DAT_VLEN)1 << 32) + 8);
    segment = local(0, 8);
    ANSWERS(0x80080000, dat_ep_post_rdma_read(active, 1, &segment, cookie, &target, flags));
    ANSWERS(INVALID_ARGUMENT(5), dat_ep_post_rdma_write(active, 1, &segment, cookie, NULL, flags));
    for (int i = 0; i < 65; i++)
        iov[i] = local(0, 1);
    ANSWERS(INVALID_ARGUMENT(2), dat_ep_post_send(active, 3, iov, cookie, flags));
    ANSWERS(INVALID_ARGUMENT(2), dat_ep_post_send(active, 65, iov, cookie, flags));
    ANSWERS(INVALID_ARGUMENT(2), dat_ep_post_send(active, -1, iov, cookie, flags));
    ANSWERS(INVALID_ARGUMENT(3), dat_ep_post_send(active, 1, NULL, cookie, flags));
    ANSWERS(0x8005000c, dat_ep_post_send(connect_evd, 1, iov, cookie, flags));
    ANSWERS(0x8005000c, dat_ep_post_send(connect_evd, 65, iov, cookie, flags));

    disconnect_pair(active, passive);
}

/*
 * A window on a part of the region, to which the peer writes. The context alone names the region.
 */
static void windows(void)
{
    const DAT_COMPLETION_FLAGS flags = DAT_COMPLETION_DEFAULT_FLAG;
    const DAT_MEM_PRIV_FLAGS privileges =
        (DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    DAT_EP_HANDLE active = endpoint(), passive = endpoint();
    DAT_RMR_HANDLE rmr;
    DAT_RMR_CONTEXT window = 0;
    DAT_RMR_PARAM param;
    DAT_RMR_BIND_COMPLETION_EVENT_DATA bound;
    DAT_LMR_TRIPLET segment = local(3072, 64);
    DAT_RMR_TRIPLET target;
    DAT_DTO_COOKIE cookie = {.as_64 = 31};

    connect_pair(active, passive);
    OK(dat_rmr_create(pz, &rmr));
    ANSWERS(INVALID_ARGUMENT(3), dat_rmr_bind(rmr, &segment, (DAT_MEM_PRIV_FLAGS)0x100, passive,
                                              cookie, flags, &window));
    ANSWERS(0x8005000c, dat_rmr_bind(rmr, &segment, privileges, rmr, cookie, flags, &window));
    ANSWERS(INVALID_ARGUMENT(7),
            dat_rmr_bind(rmr, &segment, privileges, passive, cookie, flags, NULL));
    OK(dat_rmr_bind(rmr, &segment, privileges, passive, cookie, flags, &window));
    bound =
        next_event(request_evd, DAT_RMR_BIND_COMPLETION_EVENT).event_data.rmr_completion_event_data;
    EXPECT(bound.rmr_handle == rmr && bound.user_cookie.as_64 == 31 &&
           bound.status == DAT_RMR_BIND_SUCCESS);
    OK(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
    EXPECT(param.rmr_context == window && param.mem_priv == privileges &&
           param.lmr_triplet.lmr_context == lmr_context);
    EXPECT(param.lmr_triplet.virtual_address == segment.virtual_address &&
           param.lmr_triplet.segment_length == 64);

    strcpy(memory, "window");
    target = remote(3072, 64);
    target.rmr_context = window;
    segment = local(0, 7);
    cookie.as_64 = 32;
    OK(dat_ep_post_rdma_write(active, 1, &segment, cookie, &target, flags));
    completes(request_evd, active, 32, 7);
    /* The peer carries out the read after the write, so the read returns the written data. */
    segment = local(3200, 7);
    target.segment_length = 7;
    cookie.as_64 = 33;
    OK(dat_ep_post_rdma_read(active, 1, &segment, cookie, &target, flags));
    completes(request_evd, active, 33, 7);
    EXPECT(!strcmp(memory + 3072, "window") && !strcmp(memory + 3200, "window"));

    /* A bind of length 0 unbinds. */
    memset(&segment, 0, sizeof segment);
    cookie.as_64 = 34;
    OK(dat_rmr_bind(rmr, &segment, privileges, passive, cookie, flags, &window));
    bound =
        next_event(request_evd, DAT_RMR_BIND_COMPLETION_EVENT).event_data.rmr_completion_event_data;
    EXPECT(bound.rmr_handle == rmr && bound.user_cookie.as_64 == 34 &&
           bound.status == DAT_RMR_BIND_SUCCESS);
    disconnect_pair(active, passive);
    OK(dat_rmr_free(rmr));
}

static void shared_receives(void)
{
    DAT_SRQ_ATTR srq_attr = {
        .max_recv_dtos = 8, .max_recv_iov = 1, .low_watermark = DAT_SRQ_LW_DEFAULT};
    DAT_EP_ATTR attr = attributes();
    DAT_SRQ_HANDLE srq;
    DAT_SRQ_PARAM param;
    DAT_EP_PARAM ep_param;
    DAT_EP_HANDLE active = endpoint(), passive;
    DAT_LMR_TRIPLET segment = local(4096, 64);
    DAT_DTO_COOKIE cookie = {.as_64 = 21};

    OK(dat_srq_create(ia, pz, &srq_attr, &srq));
    OK(dat_srq_resize(srq, 16));
    memset(&param, 0xee, sizeof param);
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
    EXPECT(param.srq_state == DAT_SRQ_STATE_OPERATIONAL && DAT_SRQ_STATE_OPERATIONAL == 0);
    EXPECT(param.pz_handle == pz && param.max_recv_dtos >= 16 && param.available_dto_count == 0);
    OK(dat_srq_post_recv(srq, 1, &segment, cookie));
    ANSWERS(0x80050019, dat_srq_post_recv(active, 1, &segment, cookie));
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT, &param));
    EXPECT(param.available_dto_count == 1);

    OK(dat_ep_create_with_srq(ia, pz, recv_evd, request_evd, connect_evd, srq, &attr, &passive));
    attr.max_rdma_size = (DAT_VLEN)1 << 33;
    ANSWERS(INVALID_ARGUMENT(7), dat_ep_create_with_srq(ia, pz, recv_evd, request_evd, connect_evd,
                                                        srq, &attr, &passive));
    OK(dat_ep_query(passive, DAT_EP_FIELD_SRQ_HANDLE, &ep_param));
    EXPECT(ep_param.srq_handle == srq);
    ANSWERS(0x80070056, dat_srq_free(srq)); /* in use */

    connect_pair(active, passive);
    strcpy(memory, "shared");
    segment = local(0, 7);
    cookie.as_64 = 22;
    OK(dat_ep_post_send(active, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    completes(request_evd, active, 22, 7);
    completes(recv_evd, passive, 21, 7);
    EXPECT(!strcmp(memory + 4096, "shared"));
    disconnect_pair(active, passive);
    OK(dat_srq_free(srq));
}

int main(int argc, char **argv)
{
    bool builtin = argc > 1 && !strcmp(argv[1], "builtin");

    registry(builtin);
    messages();
    adapter(builtin);
    dispatchers();
    regions();
    endpoint_parameters();
    rejection();
    transfers();
    windows();
    shared_receives();

    OK(dat_lmr_free(lmr));
    OK(dat_evd_free(recv_evd));
    OK(dat_evd_free(request_evd));
    OK(dat_evd_free(connect_evd));
    OK(dat_evd_free(cr_evd));
    ANSWERS(0x8007004f, dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG)); /* in use */
    OK(dat_pz_free(pz));
    ANSWERS(INVALID_ARGUMENT(2), dat_ia_close(ia, (DAT_CLOSE_FLAGS)7));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    ANSWERS(0x8005000b, dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    ANSWERS(0x8005000b, dat_pz_create(ia, &pz));
    puts("ok");
    return 0;
}
