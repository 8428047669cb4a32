#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include "CLinux.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

const int linux_O_PATH = O_PATH, linux_O_TMPFILE = O_TMPFILE, linux_O_DIRECT = O_DIRECT, linux_O_NOATIME = O_NOATIME;
const int linux_AT_EMPTY_PATH = AT_EMPTY_PATH;
const long linux_UTIME_NOW = UTIME_NOW, linux_UTIME_OMIT = UTIME_OMIT;
const unsigned int linux_RENAME_NOREPLACE = RENAME_NOREPLACE, linux_RENAME_EXCHANGE = RENAME_EXCHANGE;
const int linux_FALLOC_FL_KEEP_SIZE = FALLOC_FL_KEEP_SIZE, linux_FALLOC_FL_PUNCH_HOLE = FALLOC_FL_PUNCH_HOLE,
          linux_FALLOC_FL_ZERO_RANGE = FALLOC_FL_ZERO_RANGE;
const int linux_XATTR_CREATE = XATTR_CREATE;
const int linux_XATTR_REPLACE = XATTR_REPLACE;
const int linux_SEEK_DATA = SEEK_DATA, linux_SEEK_HOLE = SEEK_HOLE;

int linux_renameat2(int olddirfd, const char *oldpath, int newdirfd, const char *newpath, unsigned int flags) {
    return renameat2(olddirfd, oldpath, newdirfd, newpath, flags);
}

int linux_fallocate(int fd, int mode, int64_t offset, int64_t length) { return fallocate(fd, mode, offset, length); }

uint64_t linux_makedev(unsigned int major, unsigned int minor) { return makedev(major, minor); }

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

int linux_lock_whole(int fd, int type) {
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock);
}
int linux_syncfs(int fd) { return syncfs(fd); }

int linux_start_writing(int fd, int64_t offset, int64_t length) {
    return sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE);
}

int linux_unshare_fs(void) { return unshare(CLONE_FS); }

long linux_getdents64(int fd, void *buffer, size_t size) { return getdents64(fd, buffer, size); }

int linux_parse_directory_entry(const void *record, size_t available, struct linux_directory_entry *entry) {
    // struct linux_dirent64, getdents(2): u64 d_ino, s64 d_off, u16 d_reclen, u8 d_type, char d_name[]
    const unsigned char *bytes = record;
    if (available < 20) return -1;
    memcpy(&entry->inode, bytes, 8);
    memcpy(&entry->next_offset, bytes + 8, 8);
    memcpy(&entry->record_length, bytes + 16, 2);
    entry->type = bytes[18];
    if (entry->record_length < 20 || entry->record_length > available) return -1;
    entry->name = (const char *)bytes + 19;
    entry->name_length = strnlen(entry->name, entry->record_length - 19u);
    return 0;
}

long linux_getxattr(const char *path, const char *name, void *value, size_t size) {
    return getxattr(path, name, value, size);
}

long linux_listxattr(const char *path, char *list, size_t size) { return listxattr(path, list, size); }

int linux_setxattr(const char *path, const char *name, const void *value, size_t size, int flags) {
    return setxattr(path, name, value, size, flags);
}

int linux_removexattr(const char *path, const char *name) { return removexattr(path, name); }

int linux_become_user_on_thread(uint32_t uid, uint32_t gid) {
    // The group first: afterwards it may no longer be changed.
    if (syscall(SYS_setresgid, gid, gid, gid) != 0) return -1;
    return syscall(SYS_setresuid, uid, uid, uid) == 0 ? 0 : -1;
}

uint64_t linux_filesystem_type(int fd) {
    struct statfs s;
    return fstatfs(fd, &s) == 0 ? (uint64_t)s.f_type : 0;
}
