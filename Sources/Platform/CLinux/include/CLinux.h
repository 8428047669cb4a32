// Linux calls and constants that Swift's Glibc module does not show (it is built without _GNU_SOURCE). All return the
// call's result and set errno.
#pragma once
#include <stddef.h>
#include <stdint.h>

// A function of the C library itself, under our name.
#define LIBC(name) __asm__(#name)

// open(2) flags
extern const int linux_O_PATH, linux_O_TMPFILE, linux_O_DIRECT, linux_O_NOATIME;
// at-flags: openat(2), utimensat(2)
extern const int linux_AT_EMPTY_PATH;
extern const long linux_UTIME_NOW, linux_UTIME_OMIT;
// renameat2(2)
extern const unsigned int linux_RENAME_NOREPLACE, linux_RENAME_EXCHANGE, linux_RENAME_WHITEOUT;
// fallocate(2)
extern const int linux_FALLOC_FL_KEEP_SIZE, linux_FALLOC_FL_PUNCH_HOLE, linux_FALLOC_FL_ZERO_RANGE;
// setxattr(2)
extern const int linux_XATTR_CREATE, linux_XATTR_REPLACE;
// lseek(2)
extern const int linux_SEEK_DATA, linux_SEEK_HOLE;

// openat2(2) that stays beneath `directory`: an absolute path, a `..` and a link that lead out fail with EXDEV, links
// of /proc with ELOOP; with `follow_links` 0 every link does. Close-on-exec. Kernel 5.6.
int linux_open_beneath(int directory, const char *path, int flags, int follow_links);
int linux_renameat2(int olddirfd, const char *oldpath, int newdirfd, const char *newpath, unsigned int flags)
    LIBC(renameat2);
// faccessat(2) of the object of a descriptor, which may be O_PATH, with the effective user and groups. Kernel 5.8.
int linux_check_access(int fd, int mask);
int linux_fallocate(int fd, int mode, int64_t offset, int64_t length) LIBC(fallocate64);
// FS_IMMUTABLE_FL, ioctl_iflags(2): returns 1 or 0. Setting it needs CAP_LINUX_IMMUTABLE.
int linux_is_immutable(int fd);
int linux_make_immutable(int fd);
// fcntl(2), F_OFD_SETLK, of `length` bytes, or with 0 of all from `start` on. `type` is F_RDLCK, F_WRLCK or F_UNLCK.
int linux_lock_bytes(int fd, int type, int64_t start, int64_t length);
int linux_syncfs(int fd) LIBC(syncfs);
// sync_file_range(2), SYNC_FILE_RANGE_WRITE: the kernel begins to write these bytes out. Does not wait.
int linux_start_writing(int fd, int64_t offset, int64_t length);
// makedev(3), macros.
uint64_t linux_makedev(unsigned int major, unsigned int minor);
unsigned int linux_major(uint64_t device);
unsigned int linux_minor(uint64_t device);
// unshare(CLONE_FS): the calling thread gets its own umask and working directory.
int linux_unshare_fs(void);
long linux_getdents64(int fd, void *buffer, size_t size) LIBC(getdents64);
// getxattr(2) and related calls, by path, following links (see ExtendedAttributes.swift).
long linux_getxattr(const char *path, const char *name, void *value, size_t size) LIBC(getxattr);
long linux_listxattr(const char *path, char *list, size_t size) LIBC(listxattr);
// listxattrat(2) of an entry of a directory, not following a link. Before kernel 6.13, llistxattr(2) by the link of the
// directory's descriptor in /proc.
long linux_listxattrat(int directory, const char *entry, char *list, size_t size);
int linux_setxattr(const char *path, const char *name, const void *value, size_t size, int flags) LIBC(setxattr);
int linux_removexattr(const char *path, const char *name) LIBC(removexattr);
// memfd_secret(2): memory that is in no page table but this process's, so that not even root reads it by way of the
// kernel; system calls that pin pages (/dev/fuse, O_DIRECT) fail on it with EFAULT, those that copy work. Locked by its
// nature (RLIMIT_MEMLOCK), in no core dump, absent in a forked child. NULL if unavailable.
void *linux_map_memfd_secret(size_t size);
// mmap of anonymous private memory that is left out of core dumps and emptied in a forked child. NULL on failure.
// *locked is 1 if mlock succeeded.
void *linux_map_secret_memory(size_t size, int *locked);
// Zeroes and unmaps memory of either kind.
void linux_unmap_secret_memory(void *address, size_t size);
// Zeroes what returned functions left behind in the calling thread: up to 128 KiB of its stack below the caller, and
// its vector registers.
void linux_scrub_thread(void);
// Makes the heap return blocks of a MiB or more to the kernel when they are freed. Otherwise glibc soon keeps even blocks of 32
// MiB, for each thread (mallopt(3), M_MMAP_THRESHOLD).
void linux_return_large_blocks(void);
// prctl(2), PR_SET_DUMPABLE and PR_GET_DUMPABLE.
int linux_set_not_dumpable(void);
int linux_is_dumpable(void);
// setresgid(2) and setresuid(2) for the calling thread only (glibc's change every thread).
int linux_become_user_on_thread(uint32_t uid, uint32_t gid);
// A child process that ends a FUSE connection when this process cannot die: killed, a thread that waits in the kernel
// for an answer that never comes keeps /dev/fuse open, and with it every user of the mount. NULL on failure. To be
// called while there is one thread, whose end is taken for the process's. `arguments` is this process's command line in
// memory, which the child's copy does not show.
struct linux_guardian;
struct linux_guardian *linux_start_guardian(char *arguments, size_t size);
// Gives it the connection's number in fusectl, once, while the mount exists. Returns when it has looked for it.
void linux_guard_connection(struct linux_guardian *guardian, unsigned connection);
// statfs(2): f_type, or 0 on failure.
uint64_t linux_filesystem_type(int fd);
uint64_t linux_filesystem_type_at(const char *path);
// The identity of a path's file, from statx(2). Does not follow a link in the last component.
struct linux_file_identity {
    uint64_t device;
    uint64_t inode;
    // Nanoseconds since 1970. 0 if the file system does not record it. File systems such as ext4 give the inode number
    // of a removed directory to the next one made.
    uint64_t birth;
    uint32_t owner;
    uint32_t mode;
};
int linux_identify(const char *path, struct linux_file_identity *identity);
// st_dev of an open file, or 0. Without a request to a FUSE daemon, which may have ended (statx(2), AT_STATX_DONT_SYNC).
uint64_t linux_known_device(int fd);
// Makes the kernel ask a network or FUSE file system for the attributes of an entry, or of the file itself for "" (statx(2),
// AT_STATX_FORCE_SYNC).
int linux_refresh_status(int fd, const char *path);
// eventfd(2), close-on-exec, not blocking.
int linux_eventfd(void);
// timerfd_create(2), close-on-exec, not blocking.
int linux_timer(int clock);
// timerfd_settime(2): expires once, at a time of the timer's clock. 0 disarms.
int linux_timer_set(int fd, int64_t milliseconds);

// pipe2(2) with O_CLOEXEC.
int linux_pipe(int ends[2]);
// memfd_create(2), close-on-exec.
int linux_memory_file(const char *name);
// pidfd_open(2): close-on-exec, readable when the process has ended.
int linux_pidfd_open(int pid);
// posix_spawn_file_actions_addclosefrom_np(3); `actions` is a posix_spawn_file_actions_t.
int linux_spawn_close_from(void *actions, int first) LIBC(posix_spawn_file_actions_addclosefrom_np);
// Columns of a terminal (ioctl_tty(2), TIOCGWINSZ). 0 if unknown.
int linux_terminal_columns(int fd);
// Turns off the echo of a terminal, and discards what was typed, until linux_end_silence does both the other way round. A signal
// that ends or stops the program restores the echo first; when the program goes on, echo is off again and the question is repeated.
// One terminal at a time. Returns -1 with errno.
int linux_begin_silence(int fd);
// Writes the question that waits for an answer. Null: no question waits.
void linux_set_question(const char *question);
void linux_end_silence(void);

// Messages of /dev/fuse (<linux/fuse.h>) as far as libfuse 3.14 keeps them from a file system.
struct iovec;
// The thread that sent a request and waits for it, or 0. Unknown for threads of other PID namespaces.
static const uint32_t linux_fuse_unknown_thread = UINT32_MAX;
uint32_t linux_fuse_thread(const void *request, size_t size);
// Returns true for a READ request with which the kernel seems to read ahead into the page cache. The program does not
// wait for each of them.
int linux_fuse_reads_ahead(const void *request, size_t size);
// Returns true for FSYNC and FSYNCDIR requests.
int linux_fuse_synchronizes(const void *request, size_t size);
// Returns the INIT flags that libfuse 3.14 does not know and we use, if the kernel that sent this INIT request offers
// them: FUSE_HANDLE_KILLPRIV_V2 and FUSE_SETXATTR_EXT. Returns 0 for any other request.
uint32_t linux_fuse_offered_flags(const void *request, size_t size);
// Adds flags to libfuse's INIT reply. Returns 0 if this is another message.
int linux_fuse_add_flags(struct iovec *reply, int count, uint32_t flags);
// writev(2) of a message for the kernel. A short one is put together and written with write(2), which saves 0.3 µs.
intptr_t linux_fuse_reply(int device, const struct iovec *parts, int count);
// Returns true if a kernel that was sent these flags uses the longer SETXATTR request.
int linux_fuse_extends_setxattr(uint32_t flags);
// Shortens the longer SETXATTR request, in place, to the one that libfuse 3.14 knows. Returns its `setxattr_flags`.
// Leaves any other request as it is, and returns 0.
uint32_t linux_fuse_shorten_setxattr(void *request, size_t *size);
// Returns true if these `setxattr_flags` ask to clear the set-group-ID bit. The caller may change the access ACL, but
// may not keep the bit (posix_acl_update_mode in fs/posix_acl.c).
int linux_fuse_kills_setgid(uint32_t setxattr_flags);
// Returns true if a WRITE or SETATTR request asks to clear set-id bits, as it does without CAP_FSETID.
int linux_fuse_kills_privileges(const void *request, size_t size);
// sem_clockwait(3) of a sem_t, for at most so many nanoseconds (fewer than 10^9) of CLOCK_MONOTONIC.
int linux_semaphore_wait(void *semaphore, int64_t nanoseconds);

// sched_getcpu(3) of the calling thread, without a system call, and the core that any thread runs on or ran on last. -1 if unknown.
int linux_this_core(void);
int linux_core_of(int thread);
// sched_setaffinity(2) of the calling thread, to one core that the process may use.
int linux_stay_on_core(int core);
// The same of any thread of the process, 0 for the calling one: to all cores that the process may use but one, and to all.
int linux_stay_off_core(int thread, int core);
int linux_use_all_cores(int thread);
// The number of threads that run or are ready to run, from an open /proc/loadavg (proc_loadavg(5)). -1 if unknown.
int linux_runnable_threads(int loadavg);
// gettid(2).
int linux_thread(void);

// The kernel's keyrings. request_key(2) of a key of type "user", then keyctl_search(3) of the user's keyring: its
// serial number, or -1 with errno.
int32_t linux_find_key(const char *description);
// keyctl_read(3): the payload's size, which may be over `size` (then nothing of it may be used), or -1 with errno.
int64_t linux_read_key(int32_t key, void *buffer, size_t size);
