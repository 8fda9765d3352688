/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A wait for completions sleeps at once, or polls first for as long as OPENDAT_SPIN_US says: as the provider's own counter of
 * waits that blocked has it.
 */

#include "dat_test.h"

#include <dat2/dat_ib_extensions.h>

enum { SPIN = 100000, SHORTER = SPIN / 5, LONGER = SPIN * 2 };

static DAT_UINT64 blocked_after(struct end *end, DAT_TIMEOUT timeout)
{
    DAT_UINT64 counters[DCNT_EVD_ALL_COUNTERS];
    double started = now(), waited;
    DAT_EVENT event;
    DAT_COUNT more;

    EXPECT(DAT_GET_TYPE(dat_evd_wait(end->request, timeout, 1, &event, &more)) == DAT_TIMEOUT_EXPIRED, "an event");
    waited = now() - started;
    EXPECT(waited >= timeout * 1e-6, "waited for %.6f s only", waited);
    OK(dat_ib_query_counters(end->request, DCNT_EVD_WAIT_BLOCKED, counters, 0));
    return counters[DCNT_EVD_WAIT_BLOCKED];
}

int main(void)
{
    struct end end;
    DAT_UINT64 blocked;

    unsetenv("OPENDAT_SPIN_US");
    end_open(&end, 4096, 4);
    blocked = blocked_after(&end, SHORTER);
    EXPECT(blocked > 0, "it does not sleep");
    end_close(&end);

    setenv("OPENDAT_SPIN_US", "100000", 1);
    end_open(&end, 4096, 4);
    blocked = blocked_after(&end, SHORTER);
    EXPECT(blocked == 0, "it has slept %lu times", (unsigned long)blocked);
    blocked = blocked_after(&end, LONGER);
    EXPECT(blocked > 0, "it has polled for too long");
    end_close(&end);
    puts("ok");
    return 0;
}
