// libfuse3's low-level interface, as Debian 12 ships it (3.14).
#pragma once
#define FUSE_USE_VERSION 314
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#include <fuse3/fuse_lowlevel.h>
