#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

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
