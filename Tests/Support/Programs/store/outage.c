// Preloaded into a daemon: while the file VAULTFS_OUTAGE exists, every read, write and sync of what is below VAULTFS_OUTAGE_STORE
// is an I/O error, as on a disk or server that does not answer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static bool fails(int fd) {
    const char *control = getenv("VAULTFS_OUTAGE"), *store = getenv("VAULTFS_OUTAGE_STORE");
    if (control == NULL || store == NULL || access(control, F_OK) != 0) return false;
    char link[64], target[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target);
    if (size < (ssize_t)strlen(store) || strncmp(target, store, strlen(store)) != 0) return false;
    errno = EIO;
    return true;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread(int fd, void *bytes, size_t count, off_t offset) {
    return fails(fd) ? -1 : NEXT(pread)(fd, bytes, count, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    return fails(fd) ? -1 : NEXT(pwrite)(fd, bytes, count, offset);
}

int fdatasync(int fd) { return fails(fd) ? -1 : NEXT(fdatasync)(fd); }

int fsync(int fd) { return fails(fd) ? -1 : NEXT(fsync)(fd); }

int syncfs(int fd) { return fails(fd) ? -1 : NEXT(syncfs)(fd); }

int ftruncate(int fd, off_t size) { return fails(fd) ? -1 : NEXT(ftruncate)(fd, size); }
