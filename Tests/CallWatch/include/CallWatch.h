// Tells a test of every call by which this process changes a file system, before it is made: what a directory then holds
// is what a kill, or a power cut, would leave there. Or the call is not made, and fails as on a full disk.
#pragma once

#include <stdbool.h>

/// Called by any thread with a descriptor: of the file that is changed, or of the directory in which a name is.
/// needs_space: the call may fail for want of it. Returns 0, or the errno with which the call fails.
typedef int (*call_watch)(int fd, bool needs_space);

/// Sets who is asked; NULL: nobody.
void call_watch_set(call_watch watch);
