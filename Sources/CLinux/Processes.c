#define _GNU_SOURCE
#include "CLinux.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int linux_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }

int linux_memory_file(const char *name) { return memfd_create(name, MFD_CLOEXEC); }

int linux_pidfd_open(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

int linux_spawn_close_from(void *actions, int first) { return posix_spawn_file_actions_addclosefrom_np(actions, first); }

int linux_wait_for_input(int fd, const void *mask) {
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    return ppoll(&waiting, 1, NULL, mask);
}
