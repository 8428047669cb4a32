// Like CallWatch.c, for calls that read.
#define _GNU_SOURCE
#include "CallWatch.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic(read_watch) current;

void read_watch_set(read_watch watch) { atomic_store(&current, watch); }

static int ask(enum read_kind kind, int fd, const char *name, size_t count) {
    read_watch watch = atomic_load(&current);
    int answer = watch ? watch(kind, fd, name, count) : 0;
    if (answer > 0) errno = answer;
    return answer;
}

bool read_watch_refuses(enum read_kind kind, int fd, const char *name) { return ask(kind, fd, name, 0) > 0; }

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread(int fd, void *bytes, size_t count, off_t offset) {
    int answer = ask(READ_BYTES, fd, NULL, count);
    if (answer > 0) return -1;
    return NEXT(pread)(fd, bytes, answer == CALL_IN_PART && count > 1 ? count / 2 : count, offset);
}

ssize_t preadv(int fd, const struct iovec *buffers, int count, off_t offset) {
    struct iovec parts[count];
    size_t size = 0;
    for (int i = 0; i < count; i++) size += buffers[i].iov_len;
    int answer = ask(READ_BYTES, fd, NULL, size);
    if (answer > 0) return -1;
    size_t left = answer == CALL_IN_PART && size > 1 ? size / 2 : size;
    for (int i = 0; i < count; i++) {
        parts[i] = buffers[i];
        if (parts[i].iov_len > left) parts[i].iov_len = left;
        left -= parts[i].iov_len;
    }
    return NEXT(preadv)(fd, parts, count, offset);
}

ssize_t getdents64(int fd, void *bytes, size_t count) {
    if (read_watch_refuses(READ_ENTRIES, fd, NULL)) return -1;
    return NEXT(getdents64)(fd, bytes, count);
}

int fstatat(int directory, const char *name, struct stat *status, int flags) {
    if (read_watch_refuses(READ_STATUS, directory, name)) return -1;
    return NEXT(fstatat)(directory, name, status, flags);
}

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    static const char prefix[] = "/proc/self/fd/";
    bool isOfDescriptor = strncmp(path, prefix, sizeof prefix - 1) == 0;
    if (isOfDescriptor && read_watch_refuses(READ_OPEN, atoi(path + sizeof prefix - 1), NULL)) return -1;
    return NEXT(open)(path, flags, mode);
}
