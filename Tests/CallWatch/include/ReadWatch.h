// Tells a test of calls that read a file system, which it may have fail as on a disk that cannot read what is asked for.
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

/// Called by any thread with the descriptor of what is read, or of the directory in which name is, NULL where none is given,
/// and how many bytes are asked for. Returns 0, or the errno with which the call fails.
typedef int (*read_watch)(enum read_kind kind, int fd, const char *name, size_t count);

/// Sets who is asked; NULL: nobody.
void read_watch_set(read_watch watch);
