/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Checks that moving data allocates no memory. The consumer polls in one run and waits in another.
 * It posts sends, RDMA writes and RDMA reads of all sizes, one at a time and WINDOW at a time. The
 * program replaces the C library's allocator and counts the allocations of all threads of the
 * process.
 */

#include "dat_test.h"

#include <stdatomic.h>

enum { WINDOW = 16, ROUNDS = 200, MAX_PASSES = 5, MAX_LENGTH = 1 << 20 };

/* ---- the allocator, counting ----------------------------------------------------------------- */

static atomic_bool counting;
static atomic_long allocations;

/*
 * The C library's own allocator. glibc exports it under these names to programs that replace malloc
 * and the related functions.
 */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void count_allocation(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t size)
{
    count_allocation();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    count_allocation();
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    count_allocation();
    return __libc_realloc(old, size);
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    count_allocation();
    *place = __libc_memalign(alignment, size);
    return *place ? 0 : ENOMEM;
}

/* ---- the data path --------------------------------------------------------------------------- */

enum operation { SEND, WRITE, READ, OPERATION_COUNT };

/*
 * The passive side of the connection: a second endpoint of the same adapter, with its own queues.
 */
struct passive {
    DAT_EVD_HANDLE recv, request, connect;
    DAT_EP_HANDLE ep;
};

static void reap(DAT_EVD_HANDLE evd, int count, bool waits)
{
    double limit = now() + WAIT_LIMIT_SECONDS;
    while (count > 0) {
        DAT_EVENT event;
        if (waits) {
            event = wait_event(evd);
        } else if (dat_evd_dequeue(evd, &event) != DAT_SUCCESS) {
            EXPECT(now() < limit, "no completion within %d s", WAIT_LIMIT_SECONDS);
            continue;
        }
        EXPECT(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS, "status %d",
               event.event_data.dto_completion_event_data.status);
        count--;
    }
}

static void move(struct end *end, struct passive *passive, enum operation operation, size_t length,
                 int window, bool waits)
{
    DAT_LMR_TRIPLET here = local_segment(end, 0, length),
                    there = local_segment(end, MAX_LENGTH, length);
    DAT_RMR_TRIPLET remote = {there.virtual_address, there.segment_length, end->rmr_context};
    DAT_DTO_COOKIE cookie = {.as_64 = 1};

    for (int i = 0; i < window && operation == SEND; i++)
        OK(dat_ep_post_recv(passive->ep, 1, &there, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    for (int i = 0; i < window; i++) {
        if (operation == SEND)
            OK(dat_ep_post_send(end->ep, 1, &here, cookie, DAT_COMPLETION_DEFAULT_FLAG));
        else if (operation == WRITE)
            OK(dat_ep_post_rdma_write(end->ep, 1, &here, cookie, &remote,
                                      DAT_COMPLETION_DEFAULT_FLAG));
        else
            OK(dat_ep_post_rdma_read(end->ep, 1, &here, cookie, &remote,
                                     DAT_COMPLETION_DEFAULT_FLAG));
    }
    reap(end->request, window, waits);
    if (operation == SEND)
        reap(passive->recv, window, waits);
}

static void move_everything(struct end *end, struct passive *passive)
{
    static const size_t LENGTHS[] = {1, 64, 4096, 65536, MAX_LENGTH};

    for (int kind = 0; kind < 2 * OPERATION_COUNT; kind++)
        for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
            for (int window = 1; window <= WINDOW; window *= WINDOW)
                for (int round = 0; round < ROUNDS / window; round++)
                    move(end, passive, (enum operation)(kind / 2), LENGTHS[i], window,
                         kind % 2 != 0);
}

int main(void)
{
    struct passive passive;
    struct end end;
    DAT_EP_ATTR attr = ep_attributes(WINDOW);
    DAT_CONN_QUAL port = free_port();
    DAT_PSP_HANDLE psp;
    long counted = -1;

    end_open(&end, (size_t)2 * MAX_LENGTH, WINDOW);
    OK(dat_evd_create(end.ia, WINDOW, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &passive.recv));
    OK(dat_evd_create(end.ia, WINDOW, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &passive.request));
    OK(dat_evd_create(end.ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &passive.connect));
    OK(dat_ep_create(end.ia, end.pz, passive.recv, passive.request, passive.connect, &attr,
                     &passive.ep));
    OK(dat_psp_create(end.ia, port, end.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    start_connect(end.ep, port);
    accept_next(end.cr, passive.ep, passive.connect);
    wait_established(end.connect);

    /*
     * The queues grow a few times until they have the size that they need. An allocation for each
     * operation would occur in every pass.
     */
    for (int pass = 0; pass < MAX_PASSES && counted != 0; pass++) {
        atomic_store(&allocations, 0);
        atomic_store(&counting, true);
        move_everything(&end, &passive);
        atomic_store(&counting, false);
        counted = atomic_load(&allocations);
        printf("pass %d: %ld allocations\n", pass, counted);
    }
    EXPECT(counted == 0, "moving data allocates memory in every pass");

    OK(dat_psp_free(psp));
    OK(dat_ep_free(passive.ep));
    OK(dat_evd_free(passive.recv));
    OK(dat_evd_free(passive.request));
    OK(dat_evd_free(passive.connect));
    end_close(&end);
    puts("ok");
    return 0;
}
