#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include "CLinux.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/vfs.h>

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

uint64_t linux_filesystem_type_at(const char *path) {
    struct statfs s;
    return statfs(path, &s) == 0 ? (uint64_t)s.f_type : 0;
}

int linux_eventfd(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

int linux_timer(int clock) { return timerfd_create(clock, TFD_CLOEXEC | TFD_NONBLOCK); }

int linux_timer_set(int fd, int64_t milliseconds) {
    struct itimerspec time = {0};
    time.it_value.tv_sec = milliseconds / 1000;
    time.it_value.tv_nsec = milliseconds % 1000 * 1000000;
    return timerfd_settime(fd, TFD_TIMER_ABSTIME, &time, NULL);
}
