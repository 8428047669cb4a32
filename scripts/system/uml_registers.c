// Preloaded into User Mode Linux 6.1, which keeps 2048 bytes of registers for each process. A processor with AMX has more, and
// ptrace(2) only sets all of them (arch/x86/kernel/fpu/regset.c), so not even the first process starts. This sets all, and keeps
// the rest for each buffer of the kernel's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { largest = 1 << 14, slots = 1 << 12 };
struct kept { void *owner; unsigned char state[largest]; };
static struct kept *table[slots];

static struct kept *find(void *owner) {
    size_t start = ((size_t)owner >> 6) * 0x9E3779B97F4A7C15u >> 52;
    for (size_t i = 0; i < slots; i++) {
        struct kept **slot = &table[(start + i) % slots];
        if (!*slot && (*slot = calloc(1, sizeof **slot))) (*slot)->owner = owner;
        if (*slot && (*slot)->owner == owner) return *slot;
    }
    return 0;
}

long ptrace(enum __ptrace_request request, ...) {
    va_list list;
    va_start(list, request);
    long pid = va_arg(list, long);
    void *address = va_arg(list, void *), *data = va_arg(list, void *);
    va_end(list);
    pid = (int)pid;
    if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && (size_t)address == 0x202) {
        struct iovec *given = data;
        struct kept *kept = given->iov_len < largest ? find(given->iov_base) : 0;
        if (kept) {
            struct iovec all = {kept->state, largest};
            if (request == PTRACE_GETREGSET) {
                long result = syscall(SYS_ptrace, (long)request, pid, address, &all);
                if (result >= 0) {
                    if (given->iov_len > all.iov_len) given->iov_len = all.iov_len;
                    memcpy(given->iov_base, kept->state, given->iov_len);
                }
                return result;
            }
            static size_t size;
            if (!size) {
                static unsigned char buffer[largest];
                struct iovec other = {buffer, largest};
                if (syscall(SYS_ptrace, (long)PTRACE_GETREGSET, pid, address, &other) < 0) return -1;
                size = other.iov_len;
            }
            memcpy(kept->state, given->iov_base, given->iov_len < size ? given->iov_len : size);
            all.iov_len = size;
            return syscall(SYS_ptrace, (long)request, pid, address, &all);
        }
    }
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long value;
        long result = syscall(SYS_ptrace, (long)request, pid, address, &value);
        return result < 0 ? result : value;
    }
    return syscall(SYS_ptrace, (long)request, pid, address, data);
}
