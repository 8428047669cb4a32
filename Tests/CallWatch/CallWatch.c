// These definitions replace libc's in the test program, which is linked with them. dlsym(3) with RTLD_NEXT finds
// libc's.
#define _GNU_SOURCE
#include "CallWatch.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

static _Atomic(call_watch) current;

void call_watch_set(call_watch watch) { atomic_store(&current, watch); }

static bool refuses(watched_call call) {
    call_watch watch = atomic_load(&current);
    int error = watch ? watch(&call) : 0;
    if (error) errno = error;
    return error != 0;
}

static bool refuses_file(enum watched_kind kind, int fd) { return refuses((watched_call){kind, fd, NULL, -1, NULL}); }

static bool refuses_name(enum watched_kind kind, int directory, const char *name) {
    return refuses((watched_call){kind, directory, name, -1, NULL});
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    if (refuses_file(WATCHED_WRITE, fd)) return -1;
    return NEXT(pwrite)(fd, bytes, count, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    if (refuses_file(WATCHED_WRITE, fd)) return -1;
    return NEXT(pwritev)(fd, parts, count, offset);
}

int ftruncate(int fd, off_t size) {
    if (refuses_file(WATCHED_TRUNCATE, fd)) return -1;
    return NEXT(ftruncate)(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
    if (refuses_file(WATCHED_WRITE, fd)) return -1;
    return NEXT(fallocate)(fd, mode, offset, size);
}

int openat(int directory, const char *name, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        if (flags & O_CREAT && refuses_name(WATCHED_CREATE, directory, name)) return -1;
    }
    return NEXT(openat)(directory, name, flags, mode);
}

int renameat(int from, const char *name, int to, const char *newName) {
    if (refuses((watched_call){WATCHED_RENAME, to, newName, from, name})) return -1;
    return NEXT(renameat)(from, name, to, newName);
}

int renameat2(int from, const char *name, int to, const char *newName, unsigned int flags) {
    if (refuses((watched_call){WATCHED_RENAME, to, newName, from, name})) return -1;
    return NEXT(renameat2)(from, name, to, newName, flags);
}

int unlinkat(int directory, const char *name, int flags) {
    if (refuses_name(WATCHED_REMOVE, directory, name)) return -1;
    return NEXT(unlinkat)(directory, name, flags);
}

int mkdirat(int directory, const char *name, mode_t mode) {
    if (refuses_name(WATCHED_MAKE, directory, name)) return -1;
    return NEXT(mkdirat)(directory, name, mode);
}

int linkat(int from, const char *name, int to, const char *newName, int flags) {
    if (refuses((watched_call){WATCHED_LINK, to, newName, from, name})) return -1;
    return NEXT(linkat)(from, name, to, newName, flags);
}

int symlinkat(const char *target, int directory, const char *name) {
    if (refuses_name(WATCHED_MAKE, directory, name)) return -1;
    return NEXT(symlinkat)(target, directory, name);
}

// Calls with a path are watched only if the path is one that the kernel gives to a descriptor.
static bool refuses_path(const char *path) {
    static const char prefix[] = "/proc/self/fd/";
    if (path == NULL || strncmp(path, prefix, sizeof prefix - 1) != 0) return false;
    return refuses_file(WATCHED_ATTRIBUTES, atoi(path + sizeof prefix - 1));
}

int chmod(const char *path, mode_t mode) {
    if (refuses_path(path)) return -1;
    return NEXT(chmod)(path, mode);
}

int fchmod(int fd, mode_t mode) {
    if (refuses_file(WATCHED_ATTRIBUTES, fd)) return -1;
    return NEXT(fchmod)(fd, mode);
}

int futimens(int fd, const struct timespec times[2]) {
    if (refuses_file(WATCHED_ATTRIBUTES, fd)) return -1;
    return NEXT(futimens)(fd, times);
}

int utimensat(int directory, const char *path, const struct timespec times[2], int flags) {
    if (directory == AT_FDCWD ? refuses_path(path) : refuses_file(WATCHED_ATTRIBUTES, directory)) return -1;
    return NEXT(utimensat)(directory, path, times, flags);
}

int setxattr(const char *path, const char *name, const void *value, size_t size, int flags) {
    if (refuses_path(path)) return -1;
    return NEXT(setxattr)(path, name, value, size, flags);
}

int removexattr(const char *path, const char *name) {
    if (refuses_path(path)) return -1;
    return NEXT(removexattr)(path, name);
}

int fsync(int fd) {
    if (refuses_file(WATCHED_SYNC, fd)) return -1;
    return NEXT(fsync)(fd);
}

int fdatasync(int fd) {
    if (refuses_file(WATCHED_SYNC, fd)) return -1;
    return NEXT(fdatasync)(fd);
}

int syncfs(int fd) {
    if (refuses_file(WATCHED_SYNC_ALL, fd)) return -1;
    return NEXT(syncfs)(fd);
}

bool thread_user_set(unsigned user) {
    // Return to root first: only root can become another user.
    if (syscall(SYS_setresuid, 0, 0, 0) != 0) return false;
    if (syscall(SYS_setresgid, user, user, 0) != 0) return false;
    return user == 0 || syscall(SYS_setresuid, user, user, 0) == 0;
}
