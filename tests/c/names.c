/*
 * Uses names of the headers that programs for OFED's libraries use, but that are no functions or
 * parameters: the macros that convert parts of a triplet to a byte order, and the IPv6 addresses.
 * The file is valid C90 (with long long), C99, C11 and C++17.
 */

#include <sys/socket.h>
#include <netinet/in.h>
#include <string.h>

#ifdef UDAPL_1_2
#include <dat/udat.h>
#include <dat/dat_registry.h>
#else
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>
#endif

static int is(const void *value, const char *bytes, size_t size)
{
    return memcmp(value, bytes, size) == 0;
}

int main(void)
{
    DAT_SOCK_ADDR6 address;
    DAT_LMR_CONTEXT lmrc = 0x01020304;
    DAT_RMR_CONTEXT rmrc = 0x01020304;
    DAT_VADDR vaddr = UINT64_C(0x0102030405060708);
    DAT_VLEN vlen = UINT64_C(0x0102030405060708);
    int right;

    memset(&address, 0, sizeof address);
    address.sin6_family = DAT_AF_INET6;

    lmrc = DAT_LMRC_TO_LSB(lmrc);
    rmrc = DAT_RMRC_TO_LSB(rmrc);
    vaddr = DAT_VADDR_TO_LSB(vaddr);
    vlen = DAT_VLEN_TO_LSB(vlen);
    right = is(&lmrc, "\4\3\2\1", 4) && is(&rmrc, "\4\3\2\1", 4);
    right = right && is(&vaddr, "\10\7\6\5\4\3\2\1", 8) && is(&vlen, "\10\7\6\5\4\3\2\1", 8);

    lmrc = DAT_LMRC_TO_MSB(0x01020304);
    rmrc = DAT_RMRC_TO_MSB(0x01020304);
    vaddr = DAT_VADDR_TO_MSB(UINT64_C(0x0102030405060708));
    vlen = DAT_VLEN_TO_MSB(UINT64_C(0x0102030405060708));
    right = right && is(&lmrc, "\1\2\3\4", 4) && is(&rmrc, "\1\2\3\4", 4);
    right = right && is(&vaddr, "\1\2\3\4\5\6\7\10", 8) && is(&vlen, "\1\2\3\4\5\6\7\10", 8);
    return right ? 0 : 1;
}
