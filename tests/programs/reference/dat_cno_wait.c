/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "output.h"

#include <sys/syscall.h>

static DAT_CNO_HANDLE cno;
static long waiter;
static int result = -2;

/* Waits until a thread of this process sleeps. */
static void until_asleep(long thread)
{
    char path[64], state = 'R';
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        EXPECT(file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1, "cannot read %s",
               path);
        fclose(file);
        sched_yield();
    }
}

static void *serve_cno(void *unused)
{
    (void)unused;
    __atomic_store_n(&waiter, syscall(SYS_gettid), __ATOMIC_RELEASE);
    result = serve(cno);
    return NULL;
}

static void use_example(void)
{
    DAT_EVD_HANDLE evd;
    char line[80];
    pthread_t server;

    OK(dat_cno_create(here.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    evd = new_evd(&here, DAT_EVD_SOFTWARE_FLAG, cno);
    listen_to_output();
    server = start(serve_cno, NULL);
    post_software_event(evd);
    next_line(line, sizeof line);
    EXPECT(strstr(line, "DAT_SOFTWARE_EVENT") != NULL, "%s", line);
    stop_listening_to_output();
    /* The thread must wait again before the adapter is closed. */
    until_asleep(__atomic_load_n(&waiter, __ATOMIC_ACQUIRE));
    OK(dat_ia_close(here.ia, DAT_CLOSE_ABRUPT_FLAG));
    finish(server);
    EXPECT(result == 0, "the thread ended with %d", result);
    end_open(&here, FRAME_SIZE, FRAME_DTOS);
}
