/* Preloaded into a server: a wall clock that a test can shift.
 *
 * The file that LOCKKIT_WALL_CLOCK names holds the shift, in nanoseconds, twice: whoever reads two different values
 * has come upon a write, and looks again. Clocks that nobody can set (CLOCK_MONOTONIC and its kin) are left alone.
 *
 * Deadlines by the wall clock that the kernel keeps, as of pthread_cond_timedwait, are not shifted. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000LL

static const volatile int64_t *shifts;

__attribute__((constructor)) static void map_shifts(void) {
    const char *path = getenv("LOCKKIT_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof *shifts, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        /* A clock that never moves would let a test pass that should not. */
        dprintf(STDERR_FILENO, "LOCKKIT_WALL_CLOCK: %s: %s\n", path ? path : "not set", strerror(errno));
        _exit(EXIT_FAILURE);
    }
    close(file);
    shifts = map;
}

static int64_t shift(void) {
    int64_t first, second;
    /* Other libraries' constructors may ask for the time before ours has run. */
    if (!shifts) return 0;
    do {
        first = shifts[0];
        second = shifts[1];
    } while (first != second);
    return first;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    /* Straight to the kernel: the C library's function of this name is the one that this one hides. */
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI)) {
        int64_t by = shift();
        now->tv_sec += by / NANOSECONDS;
        now->tv_nsec += by % NANOSECONDS;
        if (now->tv_nsec < 0) {
            now->tv_nsec += NANOSECONDS;
            now->tv_sec -= 1;
        } else if (now->tv_nsec >= NANOSECONDS) {
            now->tv_nsec -= NANOSECONDS;
            now->tv_sec += 1;
        }
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds) *seconds = precise.tv_sec;
    return precise.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}
