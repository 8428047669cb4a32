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
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static _Atomic(call_watch) current;

void call_watch_set(call_watch watch) { atomic_store(&current, watch); }

static bool refuses(watched_call call) {
    call_watch watch = atomic_load(&current);
    int error = watch ? watch(&call) : 0;
    if (error > 0) errno = error;
    return error > 0;
}

// The number of bytes to write, or -1.
static ssize_t allowed(int fd, size_t count, off_t offset) {
    call_watch watch = atomic_load(&current);
    watched_call call = {WATCHED_WRITE, fd, NULL, -1, NULL, .offset = offset, .size = (long long)count};
    int answer = watch ? watch(&call) : 0;
    if (answer > 0) {
        errno = answer;
        return -1;
    }
    return (ssize_t)(answer == CALL_IN_PART && count > 1 ? count / 2 : count);
}

static bool refuses_file(enum watched_kind kind, int fd) { return refuses((watched_call){kind, fd, NULL, -1, NULL}); }

static bool refuses_name(enum watched_kind kind, int directory, const char *name) {
    return refuses((watched_call){kind, directory, name, -1, NULL});
}

static _Atomic(call_recorder) recorder;

void call_recorder_set(call_recorder new) { atomic_store(&recorder, new); }

static void made(made_call call) {
    call_recorder told = atomic_load(&recorder);
    if (told == NULL) return;
    int error = errno;
    told(&call);
    errno = error;
}

static ssize_t made_write(int fd, const void *bytes, ssize_t count, off_t offset, int flags) {
    if (count > 0 && atomic_load(&recorder)) {
        // Of files opened with O_DSYNC each write is durable.
        made((made_call){MADE_WRITE, fd, .offset = offset, .size = count, .bytes = bytes,
                         .flags = (flags | fcntl(fd, F_GETFL)) & O_DSYNC});
    }
    return count;
}

// For the parts of one write, which are told of as one.
static ssize_t made_parts(int fd, const struct iovec *parts, ssize_t count, off_t offset, int flags) {
    if (count <= 0 || atomic_load(&recorder) == NULL) return count;
    char *bytes = malloc((size_t)count);
    if (bytes == NULL) abort();
    for (size_t done = 0; done < (size_t)count; parts++) {
        size_t size = parts->iov_len < (size_t)count - done ? parts->iov_len : (size_t)count - done;
        memcpy(bytes + done, parts->iov_base, size);
        done += size;
    }
    made_write(fd, bytes, count, offset, flags);
    free(bytes);
    return count;
}

static int made_name(enum made_kind kind, int result, int directory, const char *name) {
    if (result == 0) made((made_call){kind, directory, name});
    return result;
}

static int made_file(enum made_kind kind, int result, int fd) {
    if (result == 0) made((made_call){kind, fd});
    return result;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    ssize_t size = allowed(fd, count, offset);
    if (size < 0) return -1;
    return made_write(fd, bytes, NEXT(pwrite)(fd, bytes, (size_t)size, offset), offset, 0);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    if (refuses_file(WATCHED_WRITE, fd)) return -1;
    return made_parts(fd, parts, NEXT(pwritev)(fd, parts, count, offset), offset, 0);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    if (refuses_file(WATCHED_WRITE, fd)) return -1;
    ssize_t written = NEXT(pwritev2)(fd, parts, count, offset, flags);
    return made_parts(fd, parts, written, offset, flags & (RWF_DSYNC | RWF_SYNC) ? O_DSYNC : 0);
}

int ftruncate(int fd, off_t size) {
    if (refuses((watched_call){WATCHED_TRUNCATE, fd, NULL, -1, NULL, .size = size})) return -1;
    int result = NEXT(ftruncate)(fd, size);
    if (result == 0) made((made_call){MADE_SIZE, fd, .size = size});
    return result;
}

// The sources call fallocate64 (CLinux.h). On 64-bit machines it is the same.
int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
    watched_call call = {WATCHED_ALLOCATION, fd, NULL, -1, NULL, .offset = offset, .size = size, .mode = mode};
    if (refuses(call)) return -1;
    int result = NEXT(fallocate64)(fd, mode, offset, size);
    if (result == 0) made((made_call){MADE_ALLOCATION, fd, .offset = offset, .size = size, .flags = mode});
    return result;
}

int fallocate(int fd, int mode, off_t offset, off_t size) { return fallocate64(fd, mode, offset, size); }

int openat(int directory, const char *name, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        if (flags & O_CREAT && refuses_name(WATCHED_CREATE, directory, name)) return -1;
    } else if (read_watch_refuses(READ_OPEN, directory, name)) {
        return -1;
    }
    int fd = NEXT(openat)(directory, name, flags, mode);
    bool is_changing = flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE;
    if (fd >= 0 && is_changing) made((made_call){MADE_FILE, directory, name, .source_fd = fd, .flags = flags});
    return fd;
}

int renameat(int from, const char *name, int to, const char *newName) {
    if (refuses((watched_call){WATCHED_RENAME, to, newName, from, name})) return -1;
    int result = NEXT(renameat)(from, name, to, newName);
    if (result == 0) made((made_call){MADE_RENAME, to, newName, from, name});
    return result;
}

int renameat2(int from, const char *name, int to, const char *newName, unsigned int flags) {
    if (refuses((watched_call){WATCHED_RENAME, to, newName, from, name})) return -1;
    int result = NEXT(renameat2)(from, name, to, newName, flags);
    if (result == 0) made((made_call){MADE_RENAME, to, newName, from, name, .flags = (int)flags});
    return result;
}

static _Atomic(type_watch) types;

void type_watch_set(type_watch watch) { atomic_store(&types, watch); }

// The sources call this one (CLinux.c, _FILE_OFFSET_BITS).
int fstatfs64(int fd, struct statfs64 *status) {
    int result = NEXT(fstatfs64)(fd, status);
    type_watch watch = atomic_load(&types);
    long type = result == 0 && watch ? watch(fd) : 0;
    if (type != 0) status->f_type = type;
    return result;
}

int unlinkat(int directory, const char *name, int flags) {
    if (refuses_name(WATCHED_REMOVE, directory, name)) return -1;
    return made_name(MADE_REMOVAL, NEXT(unlinkat)(directory, name, flags), directory, name);
}

int mkdirat(int directory, const char *name, mode_t mode) {
    if (refuses_name(WATCHED_MAKE, directory, name)) return -1;
    return made_name(MADE_DIRECTORY, NEXT(mkdirat)(directory, name, mode), directory, name);
}

int linkat(int from, const char *name, int to, const char *newName, int flags) {
    if (refuses((watched_call){WATCHED_LINK, to, newName, from, name})) return -1;
    return made_name(MADE_NAME, NEXT(linkat)(from, name, to, newName, flags), to, newName);
}

int symlinkat(const char *target, int directory, const char *name) {
    if (refuses_name(WATCHED_MAKE, directory, name)) return -1;
    return made_name(MADE_LINK, NEXT(symlinkat)(target, directory, name), directory, name);
}

// Calls with a path are watched only if the path is one that the kernel gives to a descriptor.
static int answer_to_path(const char *path) {
    static const char prefix[] = "/proc/self/fd/";
    call_watch watch = atomic_load(&current);
    if (watch == NULL || path == NULL || strncmp(path, prefix, sizeof prefix - 1) != 0) return 0;
    watched_call call = {WATCHED_ATTRIBUTES, atoi(path + sizeof prefix - 1), NULL, -1, NULL};
    return watch(&call);
}

static bool refuses_path(const char *path) {
    int error = answer_to_path(path);
    if (error > 0) errno = error;
    return error > 0;
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
    int answer = answer_to_path(path);
    if (answer > 0) errno = answer;
    if (answer == CALL_IN_PART) {
        // As ntfs-3g does on a full disk.
        if (NEXT(setxattr)(path, name, value, 0, flags) == 0) errno = ENOSPC;
    }
    return answer != 0 ? -1 : NEXT(setxattr)(path, name, value, size, flags);
}

int removexattr(const char *path, const char *name) {
    if (refuses_path(path)) return -1;
    return NEXT(removexattr)(path, name);
}

int fsync(int fd) {
    if (refuses_file(WATCHED_SYNC, fd)) return -1;
    return made_file(MADE_SYNC, NEXT(fsync)(fd), fd);
}

int fdatasync(int fd) {
    if (refuses_file(WATCHED_SYNC_DATA, fd)) return -1;
    return made_file(MADE_SYNC, NEXT(fdatasync)(fd), fd);
}

int syncfs(int fd) {
    if (refuses_file(WATCHED_SYNC_ALL, fd)) return -1;
    return made_file(MADE_SYNC_ALL, NEXT(syncfs)(fd), fd);
}

bool thread_user_set(unsigned user) {
    // Return to root first: only root can become another user.
    if (syscall(SYS_setresuid, 0, 0, 0) != 0) return false;
    if (syscall(SYS_setresgid, user, user, 0) != 0) return false;
    return user == 0 || syscall(SYS_setresuid, user, user, 0) == 0;
}
