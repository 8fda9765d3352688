/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The example of dat(3dat) is a whole program, which gets the name of the adapter. */
#include <dat2/udat.h>
#define main example_main
#include "example.h"
#undef main

int main(void)
{
    char *arguments[] = {(char *)"example", getenv("OPENDAT_TEST_IA"), NULL};
    if (example_main(2, arguments) != 0)
        return 1;
    puts("ok");
    return 0;
}
