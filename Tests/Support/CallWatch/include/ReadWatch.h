// Notifies a test of calls that read a file system. The test can make them fail, as on a disk with a read error.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum read_kind {
    /// pread(2), preadv(2).
    READ_BYTES,
    /// getdents64(2).
    READ_ENTRIES,
    /// fstatat(2).
    READ_STATUS,
    /// openat(2) of what exists, and open(2) of a descriptor's file by its path in /proc.
    READ_OPEN,
};

/// Called by any thread. Gets the descriptor of the file that is read, or of the directory that contains name (NULL if
/// there is no name), and the number of bytes requested. Returns 0, the errno with which the call fails, or `CALL_IN_PART` (CallWatch.h).
typedef int (*read_watch)(enum read_kind kind, int fd, const char *name, size_t count);

/// Sets the function to call. NULL: none.
void read_watch_set(read_watch watch);

/// Asks for a call that another source file replaces. Returns true with errno set if it fails.
bool read_watch_refuses(enum read_kind kind, int fd, const char *name);
