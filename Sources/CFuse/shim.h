// libfuse3's low-level interface, as Debian 12 ships it (3.14).
#pragma once
#define FUSE_USE_VERSION 314
// On 64-bit Linux off_t has 64 bits as it is. libfuse insists on the macro, which must not change how the C library's
// own headers spell their types (Swift's Glibc module has read them without it): so they are read before.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#include <fuse3/fuse_lowlevel.h>
