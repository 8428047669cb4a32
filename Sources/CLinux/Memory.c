#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447  // the same for every architecture; Debian 12's headers may be older
#endif

void *linux_map_memfd_secret(size_t size) {
    int fd = (int)syscall(SYS_memfd_secret, O_CLOEXEC);
    if (fd < 0) return NULL;
    void *address = MAP_FAILED;
    if (ftruncate(fd, (off_t)size) == 0) address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (address == MAP_FAILED) return NULL;
    // Such a mapping can only be shared: a forked child would read our keys, and write over them.
    if (madvise(address, size, MADV_DONTFORK) != 0) {
        munmap(address, size);
        return NULL;
    }
    return address;
}

void *linux_map_secret_memory(size_t size, int *locked) {
    void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return NULL;
    madvise(address, size, MADV_DONTDUMP);
    madvise(address, size, MADV_WIPEONFORK);
    *locked = mlock(address, size) == 0;
    return address;
}

void linux_unmap_secret_memory(void *address, size_t size) {
    explicit_bzero(address, size);
    munmap(address, size);
}

int linux_set_not_dumpable(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

int linux_is_dumpable(void) { return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0; }
