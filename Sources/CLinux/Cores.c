#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int linux_core_of(int thread) {
    char path[64], text[1024];
    // Under task/ the values are this thread's, not its process's.
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", thread, thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return -1;
    text[size] = 0;
    // proc_pid_stat(5): the name, field 2, may contain any bytes. Field 39 is the processor.
    const char *position = strrchr(text, ')');
    for (int field = 2; position && field < 39; field++) position = strchr(position + 1, ' ');
    return position ? atoi(position + 1) : -1;
}

int linux_stay_on_core(int core) {
    cpu_set_t allowed, one;
    // The first thread is never bound to a core, so its set is the process's.
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0) return -1;
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed)) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return sched_setaffinity(0, sizeof one, &one);
}

int linux_leave_core(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0) return -1;
    return sched_setaffinity(0, sizeof allowed, &allowed);
}
