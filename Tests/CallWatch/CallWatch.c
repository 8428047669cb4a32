// These definitions take the place of libc's in the program of the tests, which is linked with them; dlsym(3) with
// RTLD_NEXT finds libc's.
#define _GNU_SOURCE
#include "CallWatch.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic(call_watch) current;

void call_watch_set(call_watch watch) { atomic_store(&current, watch); }

static void tell(int fd) {
    call_watch watch = atomic_load(&current);
    if (watch) watch(fd);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    tell(fd);
    return NEXT(pwrite)(fd, bytes, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    tell(fd);
    return NEXT(pwritev)(fd, parts, count, offset);
}

int ftruncate(int fd, off_t size) {
    tell(fd);
    return NEXT(ftruncate)(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    tell(fd);
    return NEXT(fallocate)(fd, mode, offset, size);
}

int openat(int directory, const char *name, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        if (flags & O_CREAT) tell(directory);
    }
    return NEXT(openat)(directory, name, flags, mode);
}

int renameat(int from, const char *name, int to, const char *newName) {
    tell(to);
    return NEXT(renameat)(from, name, to, newName);
}

int renameat2(int from, const char *name, int to, const char *newName, unsigned int flags) {
    tell(to);
    return NEXT(renameat2)(from, name, to, newName, flags);
}

int unlinkat(int directory, const char *name, int flags) {
    tell(directory);
    return NEXT(unlinkat)(directory, name, flags);
}

int mkdirat(int directory, const char *name, mode_t mode) {
    tell(directory);
    return NEXT(mkdirat)(directory, name, mode);
}

int linkat(int from, const char *name, int to, const char *newName, int flags) {
    tell(to);
    return NEXT(linkat)(from, name, to, newName, flags);
}

int symlinkat(const char *target, int directory, const char *name) {
    tell(directory);
    return NEXT(symlinkat)(target, directory, name);
}
