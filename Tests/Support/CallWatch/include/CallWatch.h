// Notifies a test of every call by which this process changes a file system or makes it durable, before the call is
// made. The directory then holds what a kill at this moment would leave. Unsynchronized changes are those that a power
// cut could lose. The test can also suppress the call and make it fail, as on a full disk.
#pragma once

#include "ReadWatch.h"
#include <stdbool.h>

/// WATCHED_ALLOCATION: fallocate. WATCHED_MAKE: mkdirat, symlinkat. WATCHED_ATTRIBUTES: mode, times, extended
/// attributes. WATCHED_SYNC: fsync. WATCHED_SYNC_DATA: fdatasync. WATCHED_SYNC_ALL: syncfs.
enum watched_kind {
    WATCHED_WRITE, WATCHED_ALLOCATION, WATCHED_TRUNCATE, WATCHED_CREATE, WATCHED_MAKE, WATCHED_LINK, WATCHED_RENAME,
    WATCHED_REMOVE, WATCHED_ATTRIBUTES, WATCHED_SYNC, WATCHED_SYNC_DATA, WATCHED_SYNC_ALL
};

typedef struct {
    enum watched_kind kind;
    /// The descriptor of the file, or of the directory that contains `name`.
    int fd;
    /// NULL if the call concerns the file itself.
    const char *name;
    /// The source of a rename or link, otherwise NULL.
    int source_fd;
    const char *source_name;
    /// WATCHED_WRITE, WATCHED_ALLOCATION: the range. WATCHED_TRUNCATE: the new size.
    long long offset, size;
    /// WATCHED_ALLOCATION: the mode of fallocate.
    int mode;
} watched_call;

/// An answer to pwrite(2) or pread(2): only the first half of the bytes is written or read.
enum { CALL_IN_PART = -1 };

/// Called by any thread. Returns 0, the errno with which the call fails, or `CALL_IN_PART`.
typedef int (*call_watch)(const watched_call *call);

/// Sets the function to call. NULL: none.
void call_watch_set(call_watch watch);

/// Called by any thread. Returns the type that fstatfs(2) returns of the file system of a file, or 0 for the real one.
typedef long (*type_watch)(int fd);

/// Sets the function to call. NULL: none.
void type_watch_set(type_watch watch);

/// Makes this thread of root, and the threads and processes that it starts, act as a user. 0: as root again. Returns
/// false if that is not allowed.
bool thread_user_set(unsigned user);

enum made_kind {
    MADE_WRITE, MADE_SIZE, MADE_ALLOCATION, MADE_FILE, MADE_DIRECTORY, MADE_LINK, MADE_NAME, MADE_RENAME, MADE_REMOVAL,
    MADE_SYNC, MADE_SYNC_ALL
};

/// A call that has been made and has changed a file system, or made changes durable.
typedef struct {
    enum made_kind kind;
    /// The descriptor of the file, or of the directory in which `name` is.
    int fd;
    const char *name;
    /// MADE_RENAME: the directory and the name before. MADE_FILE: the opened file, and NULL.
    int source_fd;
    const char *source_name;
    /// MADE_WRITE, MADE_ALLOCATION: the range. MADE_SIZE: the new size.
    long long offset, size;
    const void *bytes;
    /// The flags of openat, fallocate or renameat2. MADE_WRITE: O_DSYNC if the write is durable.
    int flags;
} made_call;

/// Called by any thread, after the call.
typedef void (*call_recorder)(const made_call *call);

/// Sets who is told of each call that has been made; NULL: nobody.
void call_recorder_set(call_recorder recorder);
