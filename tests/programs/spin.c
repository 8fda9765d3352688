/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A wait for completions sleeps at once, or first polls for as long as OPENDAT_PARAMS says. The
 * provider's counter of waits that blocked shows which.
 */

#include "dat_test.h"

#include <dat2/dat_ib_extensions.h>

enum { SPIN_US = 100000, SHORTER_US = SPIN_US / 5, LONGER_US = SPIN_US * 2 };

static DAT_UINT64 blocked_after(struct end *end, DAT_TIMEOUT timeout)
{
    DAT_UINT64 counters[DCNT_EVD_ALL_COUNTERS];
    double started = now(), waited;
    DAT_EVENT event;
    DAT_COUNT more;

    EXPECT(DAT_GET_TYPE(dat_evd_wait(end->request, timeout, 1, &event, &more)) ==
               DAT_TIMEOUT_EXPIRED,
           "an event arrived");
    waited = now() - started;
    EXPECT(waited >= timeout * 1e-6, "waited for %.6f s only", waited);
    OK(dat_ib_query_counters(end->request, DCNT_EVD_WAIT_BLOCKED, counters, 0));
    return counters[DCNT_EVD_WAIT_BLOCKED];
}

int main(void)
{
    struct end end;
    DAT_UINT64 blocked;

    unsetenv("OPENDAT_PARAMS");
    end_open(&end, 4096, 4);
    blocked = blocked_after(&end, SHORTER_US);
    EXPECT(blocked > 0, "the wait has not slept");
    end_close(&end);

    setenv("OPENDAT_PARAMS", "spin=100000", 1);
    end_open(&end, 4096, 4);
    blocked = blocked_after(&end, SHORTER_US);
    EXPECT(blocked == 0, "the wait has slept %lu times", (unsigned long)blocked);
    blocked = blocked_after(&end, LONGER_US);
    EXPECT(blocked > 0, "the wait has only polled");
    end_close(&end);
    puts("ok");
    return 0;
}
