/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Extended operations, whose function takes variable arguments: the order and the number of the
 * arguments depend on the processor's calling convention. The client adds to a number in the memory
 * of the server, exchanges it, and writes it with immediate data. The last operation has the most
 * arguments.
 */

#include "dat_test.h"

#include <dat2/dat_ib_extensions.h>

enum { START = 40, ADDED = 2, EXCHANGED = 1000, IMMEDIATE = 0x01020304 };

static uint64_t *number(const struct end *end)
{
    return (uint64_t *)(void *)end->buffer;
}

/* Registers the buffer once more, with the privilege for atomic operations. */
static DAT_LMR_HANDLE allow_atomics(struct end *end)
{
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_HANDLE lmr;
    DAT_VLEN registered_size;
    DAT_VADDR registered_address;

    memset(&region, 0, sizeof region);
    region.for_va = end->buffer;
    OK(dat_lmr_create(end->ia, DAT_MEM_TYPE_VIRTUAL, region, end->size, end->pz,
                      DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC, DAT_VA_TYPE_VA, &lmr,
                      &end->lmr_context, &end->rmr_context, &registered_size,
                      &registered_address));
    return lmr;
}

static void be_server(struct end *end, int introduction)
{
    const DAT_IB_EXTENSION_EVENT_DATA *extension;
    DAT_EVENT event;

    *number(end) = START;
    post_receives(end, 1, 8);
    serve_one(end, introduction);
    event = wait_event(end->recv);
    extension = (const void *)event.event_extension_data;
    EXPECT(extension->type == DAT_IB_RDMA_WRITE_IMMED_DATA, "type %d", extension->type);
    EXPECT(extension->val.immed.data == IMMEDIATE, "immediate data %#x",
           extension->val.immed.data);
    EXPECT(*number(end) == EXCHANGED, "the number is %llu", (unsigned long long)*number(end));
    wait_event(end->connect);
}

/* Waits for the operation, and checks the number that it has found at the server. */
static void expect_found(struct end *end, uint64_t found)
{
    DAT_EVENT event = wait_event(end->request);
    (void)event;
    EXPECT(*number(end) == found, "found %llu instead of %llu",
           (unsigned long long)*number(end), (unsigned long long)found);
}

static void be_client(struct end *end, int introduction)
{
    DAT_LMR_TRIPLET local = local_segment(end, 0, 8);
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_RMR_TRIPLET remote;
    struct introduction peer;

    peer = connect_to(end, introduction);
    remote = remote_segment(&peer, 0, 8);
    OK(dat_ib_post_fetch_and_add(end->ep, ADDED, &local, cookie, &remote,
                                 DAT_COMPLETION_DEFAULT_FLAG));
    expect_found(end, START);
    OK(dat_ib_post_cmp_and_swap(end->ep, START + ADDED, EXCHANGED, &local, cookie, &remote,
                                DAT_COMPLETION_DEFAULT_FLAG));
    expect_found(end, START + ADDED);
    *number(end) = EXCHANGED;
    OK(dat_ib_post_rdma_write_immed(end->ep, 1, &local, cookie, &remote, IMMEDIATE,
                                    DAT_COMPLETION_DEFAULT_FLAG));
    expect_found(end, EXCHANGED);
    OK(dat_ep_disconnect(end->ep, DAT_CLOSE_GRACEFUL_FLAG));
    wait_event(end->connect);
}

int main(void)
{
    int introduction[2];
    struct end end;
    DAT_LMR_HANDLE lmr;
    pid_t server;

    EXPECT(pipe(introduction) == 0, "pipe: %s", strerror(errno));
    server = fork();
    EXPECT(server >= 0, "fork: %s", strerror(errno));
    end_open(&end, 4096, 4);
    lmr = allow_atomics(&end);
    if (server == 0)
        be_server(&end, introduction[1]);
    else
        be_client(&end, introduction[0]);
    OK(dat_lmr_free(lmr));
    end_close(&end);
    if (server != 0) {
        join(server);
        puts("ok");
    }
    return 0;
}
