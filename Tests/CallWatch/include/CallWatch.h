// Tells a test of every call by which this process changes a file system, before it is made: what a directory then holds
// is what a kill, or a power cut, would leave there.
#pragma once

/// Called by any thread with a descriptor: of the file that is changed, or of the directory in which a name is.
typedef void (*call_watch)(int fd);

/// Sets who is told; NULL: nobody.
void call_watch_set(call_watch watch);
