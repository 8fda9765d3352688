/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory for atomic operations. */

#ifndef ATOMICS_H
#define ATOMICS_H

/* Lets peers change the first 8 octets of the buffer of `there` with atomic operations. */
static inline DAT_RMR_TRIPLET atomic_target(void)
{
    DAT_REGION_DESCRIPTION region = {.for_va = there.buffer};
    DAT_RMR_TRIPLET target = remote_part(&there, 0, 8);
    DAT_LMR_HANDLE lmr;
    OK(dat_lmr_create(there.ia, DAT_MEM_TYPE_VIRTUAL, region, 8, there.pz,
                      (DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC),
                      DAT_VA_TYPE_VA, &lmr, NULL, &target.rmr_context, NULL, NULL));
    return target;
}

#endif
