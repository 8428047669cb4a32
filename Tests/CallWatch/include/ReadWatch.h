// Notifies a test of calls that read a file system. The test can make them fail, as on a disk with a read error.
#pragma once

#include <stddef.h>

enum read_kind {
    /// pread(2).
    READ_BYTES,
    /// getdents64(2).
    READ_ENTRIES,
    /// fstatat(2).
    READ_STATUS,
};

/// Called by any thread. Gets the descriptor of the file that is read, or of the directory that contains name (NULL if
/// there is no name), and the number of bytes requested. Returns 0, or the errno with which the call fails.
typedef int (*read_watch)(enum read_kind kind, int fd, const char *name, size_t count);

/// Sets the function to call. NULL: none.
void read_watch_set(read_watch watch);
