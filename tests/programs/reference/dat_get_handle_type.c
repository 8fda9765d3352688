/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "output.h"

static void use_example(void)
{
    const struct {
        DAT_HANDLE object;
        const char *text;
    } cases[] = {
        {here.ia, "the adapter has failed\n"},
        {here.ep, "an endpoint has failed\n"},
        {here.recv, "an event dispatcher has overflowed\n"},
    };
    char line[80];

    listen_to_output();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DAT_EVENT event = {.event_number = DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR};
        event.event_data.asynch_error_event_data.dat_handle = cases[i].object;
        report(&event);
        next_line(line, sizeof line);
        EXPECT(strcmp(line, cases[i].text) == 0, "%s", line);
    }
    stop_listening_to_output();
}
