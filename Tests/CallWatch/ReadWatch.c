// Like CallWatch.c, for calls that read.
#define _GNU_SOURCE
#include "ReadWatch.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic(read_watch) current;

void read_watch_set(read_watch watch) { atomic_store(&current, watch); }

static bool refuses(enum read_kind kind, int fd, const char *name, size_t count) {
    read_watch watch = atomic_load(&current);
    int error = watch ? watch(kind, fd, name, count) : 0;
    if (error) errno = error;
    return error != 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread(int fd, void *bytes, size_t count, off_t offset) {
    if (refuses(READ_BYTES, fd, NULL, count)) return -1;
    return NEXT(pread)(fd, bytes, count, offset);
}

ssize_t getdents64(int fd, void *bytes, size_t count) {
    if (refuses(READ_ENTRIES, fd, NULL, count)) return -1;
    return NEXT(getdents64)(fd, bytes, count);
}

int fstatat(int directory, const char *name, struct stat *status, int flags) {
    if (refuses(READ_STATUS, directory, name, 0)) return -1;
    return NEXT(fstatat)(directory, name, status, flags);
}
