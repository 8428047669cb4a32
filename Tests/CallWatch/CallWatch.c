// These definitions take the place of libc's in the program of the tests, which is linked with them; dlsym(3) with
// RTLD_NEXT finds libc's.
#define _GNU_SOURCE
#include "CallWatch.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic(call_watch) current;

void call_watch_set(call_watch watch) { atomic_store(&current, watch); }

static bool refuses(int fd, bool needs_space) {
    call_watch watch = atomic_load(&current);
    int error = watch ? watch(fd, needs_space) : 0;
    if (error) errno = error;
    return error != 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    if (refuses(fd, true)) return -1;
    return NEXT(pwrite)(fd, bytes, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    if (refuses(fd, true)) return -1;
    return NEXT(pwritev)(fd, parts, count, offset);
}

int ftruncate(int fd, off_t size) {
    if (refuses(fd, false)) return -1;
    return NEXT(ftruncate)(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    if (refuses(fd, true)) return -1;
    return NEXT(fallocate)(fd, mode, offset, size);
}

int openat(int directory, const char *name, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        if (flags & O_CREAT && refuses(directory, true)) return -1;
    }
    return NEXT(openat)(directory, name, flags, mode);
}

int renameat(int from, const char *name, int to, const char *newName) {
    if (refuses(to, true)) return -1;
    return NEXT(renameat)(from, name, to, newName);
}

int renameat2(int from, const char *name, int to, const char *newName, unsigned int flags) {
    if (refuses(to, true)) return -1;
    return NEXT(renameat2)(from, name, to, newName, flags);
}

int unlinkat(int directory, const char *name, int flags) {
    if (refuses(directory, false)) return -1;
    return NEXT(unlinkat)(directory, name, flags);
}

int mkdirat(int directory, const char *name, mode_t mode) {
    if (refuses(directory, true)) return -1;
    return NEXT(mkdirat)(directory, name, mode);
}

int linkat(int from, const char *name, int to, const char *newName, int flags) {
    if (refuses(to, true)) return -1;
    return NEXT(linkat)(from, name, to, newName, flags);
}

int symlinkat(const char *target, int directory, const char *name) {
    if (refuses(directory, true)) return -1;
    return NEXT(symlinkat)(target, directory, name);
}
