#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <linux/keyctl.h>
#include <sys/syscall.h>
#include <unistd.h>

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
