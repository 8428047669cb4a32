#define _GNU_SOURCE
#include "CLinux.h"

#include <semaphore.h>
#include <time.h>

int linux_semaphore_wait(void *semaphore, int64_t nanoseconds) {
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += nanoseconds;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_nsec -= 1000000000;
        deadline.tv_sec += 1;
    }
    return sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline);
}
