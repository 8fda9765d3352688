/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* RMRs of an end. */

#ifndef RMR_H
#define RMR_H

static inline DAT_RMR_HANDLE new_rmr(const struct end *end)
{
    DAT_RMR_HANDLE rmr;
    OK(dat_rmr_create(end->pz, &rmr));
    return rmr;
}

/* Gives an end an EP whose request EVD also accepts the completions of binds. */
static inline void with_binds(struct end *end)
{
    DAT_EVD_HANDLE request = new_evd(end, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG,
                                     DAT_HANDLE_NULL);
    replace_ep(end, end->recv, request, end->connect);
}

/* Takes an event, which must say that a bind has succeeded. */
static inline void bound(struct end *end)
{
    DAT_EVENT event = wait_event(end->request);
    EXPECT(event.event_number == DAT_RMR_BIND_COMPLETION_EVENT &&
               event.event_data.rmr_completion_event_data.status == DAT_RMR_BIND_SUCCESS,
           "the bind failed: event 0x%x", event.event_number);
}

/* Lets the peer of a connected end access a part of its buffer. Returns the context. */
static inline DAT_RMR_CONTEXT bind_window(struct end *end, DAT_RMR_HANDLE rmr, size_t offset,
                                          size_t length)
{
    DAT_LMR_TRIPLET part = local_segment(end, offset, length);
    DAT_RMR_COOKIE cookie = {.as_64 = 1};
    DAT_RMR_CONTEXT context;
#ifdef UDAPL_1_2
    OK(dat_rmr_bind(rmr, &part, DAT_MEM_PRIV_ALL_FLAG, end->ep, cookie,
                    DAT_COMPLETION_DEFAULT_FLAG, &context));
#else
    OK(dat_rmr_bind(rmr, end->lmr, &part, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, end->ep, cookie,
                    DAT_COMPLETION_DEFAULT_FLAG, &context));
#endif
    bound(end);
    return context;
}

#endif
