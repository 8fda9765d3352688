/*
 * Checks <dat2/...>, or <dat/...> if UDAPL_1_2 is defined, against lists of sizes, offsets, values,
 * types and names, which tests/headers.rs writes from dat-sys. The file is valid C11 and C++11. The
 * compiler checks most of it, and the running program checks the rest.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <netinet/in.h>

#ifdef UDAPL_1_2
#include <dat/udat.h>
#include <dat/dat_registry.h>
#else
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>
#endif

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
#define ALIGNMENT(type)  alignof(type)
#else
#define CHECK(condition) _Static_assert(condition, #condition)
#define ALIGNMENT(type)  _Alignof(type)
#endif

#ifndef UDAPL_1_2
/* In the headers these types have no name. In dat-sys they have the names below. */
typedef __typeof__(((DAT_CNO_PARAM *)0)->proxy) DAT_CNO_PROXY;
typedef __typeof__(((DAT_IB_EXTENSION_EVENT_DATA *)0)->val) DAT_IB_EVENT_VALUE;
#endif

#define CONSTANT(name, value) CHECK((long long)(name) == (value));
#include "constants.h"

#define RECORD(type, size, alignment)                                                              \
    CHECK(sizeof(type) == (size) && ALIGNMENT(type) == (alignment));
#define MEMBER(type, member, offset, size) \
    CHECK(offsetof(type, member) == (offset) && sizeof(((type *)0)->member) == (size));
#include "records.h"

/* C++ does not convert pointers between enumerations and integers, so only C compares types. */
#ifndef __cplusplus

/* The last argument declares `pointer`: a pointer to the type that the member has in dat-sys. */
#define MEMBER_TYPE(type, member, ...) \
    {                                  \
        type *record = NULL;           \
        __VA_ARGS__ = &record->member; \
        (void)pointer;                 \
    }
static inline void member_types(void)
{
#include "member_types.h"
}

#define FUNCTION(name) table->name##_func = dat_##name;
static inline void function_types(DAT_PROVIDER *table)
{
#include "functions.h"
}

#endif

static int failures;

static void expect(int holds, const char *what)
{
    if (!holds) {
        printf("differs: %s\n", what);
        failures++;
    }
}

int main(void)
{
    DAT_OS_WAIT_PROXY_AGENT no_agent = DAT_OS_WAIT_PROXY_AGENT_NULL;

    expect(no_agent.instance_data == NULL && no_agent.proxy_agent_func == NULL,
           "DAT_OS_WAIT_PROXY_AGENT_NULL");

#define HANDLE(name, value) expect((uintptr_t)(name) == (value), #name);
#include "handles.h"

#define TEXT(name, value) expect(strcmp(name, value) == 0, #name);
#include "texts.h"

    /* OFED's headers have no such function. */
#ifndef OFED_HEADERS
#define EVENT(name) expect(strcmp(dat_event_name((DAT_EVENT_NUMBER)(name)), #name) == 0, #name);
#include "events.h"
    expect(strcmp(dat_event_name((DAT_EVENT_NUMBER)0), "unknown event") == 0, "no event");
    expect(strcmp(dat_event_name((DAT_EVENT_NUMBER)0x4009), "unknown event") == 0, "no event");
#endif

    return failures != 0;
}
