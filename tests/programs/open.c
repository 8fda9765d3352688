/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Opens the adapter of the given name and closes it. The program is compiled with only the flags
 * that pkg-config prints.
 */
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
