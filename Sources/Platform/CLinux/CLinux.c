#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <malloc.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

const int linux_O_PATH = O_PATH, linux_O_TMPFILE = O_TMPFILE, linux_O_DIRECT = O_DIRECT, linux_O_NOATIME = O_NOATIME;
const int linux_AT_EMPTY_PATH = AT_EMPTY_PATH;
const long linux_UTIME_NOW = UTIME_NOW, linux_UTIME_OMIT = UTIME_OMIT;
const unsigned int linux_RENAME_NOREPLACE = RENAME_NOREPLACE, linux_RENAME_EXCHANGE = RENAME_EXCHANGE,
                   linux_RENAME_WHITEOUT = RENAME_WHITEOUT;
const int linux_FALLOC_FL_KEEP_SIZE = FALLOC_FL_KEEP_SIZE, linux_FALLOC_FL_PUNCH_HOLE = FALLOC_FL_PUNCH_HOLE,
          linux_FALLOC_FL_ZERO_RANGE = FALLOC_FL_ZERO_RANGE;
const int linux_XATTR_CREATE = XATTR_CREATE, linux_XATTR_REPLACE = XATTR_REPLACE;
const int linux_SEEK_DATA = SEEK_DATA, linux_SEEK_HOLE = SEEK_HOLE;

// MARK: Files

int linux_open_beneath(int directory, const char *path, int flags, int follow_links) {
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (follow_links ? 0 : RESOLVE_NO_SYMLINKS),
    };
    // EAGAIN: a rename happened during the lookup of "..". Constant renames must not keep us here.
    for (int attempt = 0; attempt < 32; attempt++) {
        long fd = syscall(SYS_openat2, directory, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN) return (int)fd;
    }
    return -1;
}

long linux_listxattrat(int directory, const char *entry, char *list, size_t size) {
    static const long number = 465; // SYS_listxattrat, which Debian 12's headers lack.
    static atomic_bool is_missing;
    if (!is_missing) {
        long count = syscall(number, directory, entry, AT_SYMLINK_NOFOLLOW, list, size);
        // A container's filter may refuse what it does not know with EPERM.
        if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
        is_missing = true;
    }
    char path[sizeof "/proc/self/fd/-2147483648/" + NAME_MAX];
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", directory, entry);
    return llistxattr(path, list, size);
}

uint64_t linux_makedev(unsigned int major, unsigned int minor) { return makedev(major, minor); }
unsigned int linux_major(uint64_t device) { return major(device); }
unsigned int linux_minor(uint64_t device) { return minor(device); }

int linux_check_access(int fd, int mask) { return faccessat(fd, "", mask, AT_EACCESS | AT_EMPTY_PATH); }

int linux_is_immutable(int fd) {
    int flags;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return -1;
    return (flags & FS_IMMUTABLE_FL) != 0;
}

int linux_make_immutable(int fd) {
    int flags;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return -1;
    flags |= FS_IMMUTABLE_FL;
    return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

int linux_lock_bytes(int fd, int type, int64_t start, int64_t length) {
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, F_OFD_SETLK, &lock);
}

int linux_start_writing(int fd, int64_t offset, int64_t length) {
    return sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE);
}

int linux_unshare_fs(void) { return unshare(CLONE_FS); }

int linux_become_user_on_thread(uint32_t uid, uint32_t gid) {
    // The group first: afterwards it may no longer be changed.
    if (syscall(SYS_setresgid, gid, gid, gid) != 0) return -1;
    return syscall(SYS_setresuid, uid, uid, uid) == 0 ? 0 : -1;
}

uint64_t linux_filesystem_type(int fd) {
    struct statfs s;
    return fstatfs(fd, &s) == 0 ? (uint64_t)s.f_type : 0;
}

uint64_t linux_filesystem_type_at(const char *path) {
    struct statfs s;
    return statfs(path, &s) == 0 ? (uint64_t)s.f_type : 0;
}

int linux_identify(const char *path, struct linux_file_identity *identity) {
    struct statx s;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_MODE | STATX_UID | STATX_INO | STATX_BTIME, &s))
        return -1;
    identity->device = makedev(s.stx_dev_major, s.stx_dev_minor);
    identity->inode = s.stx_ino;
    identity->birth = s.stx_mask & STATX_BTIME ? (uint64_t)s.stx_btime.tv_sec * 1000000000u + s.stx_btime.tv_nsec : 0;
    identity->owner = s.stx_uid;
    identity->mode = s.stx_mode;
    return 0;
}

uint64_t linux_known_device(int fd) {
    struct statx s;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &s)) return 0;
    return makedev(s.stx_dev_major, s.stx_dev_minor);
}

int linux_refresh_status(int fd, const char *path) {
    struct statx s;
    return statx(fd, path, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &s);
}

int linux_eventfd(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

int linux_timer(int clock) { return timerfd_create(clock, TFD_CLOEXEC | TFD_NONBLOCK); }

int linux_timer_set(int fd, int64_t milliseconds) {
    struct itimerspec time = {0};
    time.it_value.tv_sec = milliseconds / 1000;
    time.it_value.tv_nsec = milliseconds % 1000 * 1000000;
    return timerfd_settime(fd, TFD_TIMER_ABSTIME, &time, NULL);
}

// MARK: Processes and threads

int linux_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }

int linux_memory_file(const char *name) { return memfd_create(name, MFD_CLOEXEC); }

int linux_pidfd_open(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

int linux_semaphore_wait(void *semaphore, int64_t nanoseconds) {
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += nanoseconds;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_nsec -= 1000000000;
        deadline.tv_sec += 1;
    }
    return sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline);
}

int linux_this_core(void) { return sched_getcpu(); }

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

int linux_use_all_cores(int thread) {
    cpu_set_t allowed;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0) return -1;
    return sched_setaffinity(thread, sizeof allowed, &allowed);
}

int linux_stay_off_core(int thread, int core) {
    cpu_set_t allowed;
    if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0) return -1;
    CPU_CLR(core, &allowed);
    return sched_setaffinity(thread, sizeof allowed, &allowed);
}

int linux_runnable_threads(int loadavg) {
    char text[128];
    ssize_t size = pread(loadavg, text, sizeof text - 1, 0);
    if (size <= 0) return -1;
    text[size] = 0;
    int count;
    return sscanf(text, "%*s %*s %*s %d/", &count) == 1 ? count : -1;
}

int linux_thread(void) { return gettid(); }

// MARK: Keys and memory

int32_t linux_find_key(const char *description) {
    long key = syscall(SYS_request_key, "user", description, NULL, 0);
    // A process without a session keyring, as of a service, does not look into its user's.
    if (key < 0 && errno == ENOKEY) {
        key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", description, 0);
    }
    return (int32_t)key;
}

int64_t linux_read_key(int32_t key, void *buffer, size_t size) {
    return syscall(SYS_keyctl, KEYCTL_READ, key, buffer, size);
}

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

void linux_return_large_blocks(void) { mallopt(M_MMAP_THRESHOLD, 1 << 20); }

int linux_set_not_dumpable(void) { return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

int linux_is_dumpable(void) { return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0; }
