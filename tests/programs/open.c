/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A consumer that knows nothing but what pkg-config says: opens the adapter of this name and closes it. */
#include UDAT
#include <stdio.h>

int main(int argc, char **argv)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    if (argc != 2 || dat_ia_open(argv[1], 8, &async, &ia) != DAT_SUCCESS)
        return 1;
    if (dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG) != DAT_SUCCESS)
        return 2;
    printf("opened %s\n", argv[1]);
    return 0;
}
