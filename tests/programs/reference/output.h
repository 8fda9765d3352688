/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the example prints, for the program that runs it. */

#ifndef OUTPUT_H
#define OUTPUT_H

static FILE *printed;
static int standard_output;

/* From now on, the program reads what it prints. */
static inline void listen_to_output(void)
{
    int pipe_ends[2];
    EXPECT(pipe(pipe_ends) == 0, "no pipe: %s", strerror(errno));
    setvbuf(stdout, NULL, _IOLBF, 0);
    standard_output = dup(STDOUT_FILENO);
    EXPECT(standard_output >= 0 && dup2(pipe_ends[1], STDOUT_FILENO) >= 0, "no descriptor");
    close(pipe_ends[1]);
    printed = fdopen(pipe_ends[0], "r");
    EXPECT(printed != NULL, "no stream");
}

/* Waits for the next line that the program prints. */
static inline void next_line(char *line, int size)
{
    EXPECT(fgets(line, size, printed) != NULL, "the example prints nothing");
}

static inline void stop_listening_to_output(void)
{
    EXPECT(dup2(standard_output, STDOUT_FILENO) >= 0, "no descriptor");
    close(standard_output);
    fclose(printed);
}

#endif
