// Tells a test of every call by which this process changes a file system or makes it durable, before it is made: what a
// directory then holds is what a kill would leave there, and what is not synchronized is what a power cut could take.
// Or the call is not made, and fails as on a full disk.
#pragma once

#include "ReadWatch.h"
#include <stdbool.h>

/// WATCHED_MAKE: mkdirat, symlinkat. WATCHED_ATTRIBUTES: mode, times, extended attributes. WATCHED_SYNC: fsync, fdatasync. WATCHED_SYNC_ALL: syncfs.
enum watched_kind {
    WATCHED_WRITE, WATCHED_TRUNCATE, WATCHED_CREATE, WATCHED_MAKE, WATCHED_LINK, WATCHED_RENAME, WATCHED_REMOVE,
    WATCHED_ATTRIBUTES, WATCHED_SYNC, WATCHED_SYNC_ALL
};

typedef struct {
    enum watched_kind kind;
    /// Of the file, or of the directory in which `name` is.
    int fd;
    /// NULL where it is about the file itself.
    const char *name;
    /// What is renamed or linked; NULL else.
    int source_fd;
    const char *source_name;
} watched_call;

/// Called by any thread. Returns 0, or the errno with which the call fails.
typedef int (*call_watch)(const watched_call *call);

/// Sets who is asked; NULL: nobody.
void call_watch_set(call_watch watch);

/// Has this thread of root's be of a user, and what it starts; 0: of root again. False where that is not allowed.
bool thread_user_set(unsigned user);
