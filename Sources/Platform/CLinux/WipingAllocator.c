// free(3) and realloc(3) for the whole process, overwriting the memory that they return to glibc's allocator.
//
// Key schedules of libcrypto, names, attribute values and JSON with a passphrase lie on the ordinary heap, in the
// memory of libraries that do not clear it. mallopt(M_PERTURB) does not help: glibc 2.36 leaves what it keeps in the
// thread cache (the first seven of each size up to 1032 bytes) as it was, and the last 8 bytes of everything else.
// An executable's definitions come before libc's, for all libraries (ld.so(8)); those of glibc, which do the work, are
// reached by the names that it exports for this.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

extern void __libc_free(void *memory);
extern void *__libc_realloc(void *memory, size_t size);

void free(void *memory) {
    if (memory == NULL) return;
    explicit_bzero(memory, malloc_usable_size(memory));
    __libc_free(memory);
}

void *realloc(void *memory, size_t size) {
    if (memory == NULL) return malloc(size);
    size_t old_size = malloc_usable_size(memory);
    if (size <= old_size) {
        // As glibc has it, size 0 frees. Otherwise the tail is given up, if anything is, and nothing moves.
        explicit_bzero((char *)memory + size, old_size - size);
        return __libc_realloc(memory, size);
    }
    // glibc may move a growing block, and does not clear the old one.
    void *grown = malloc(size);
    if (grown == NULL) return NULL;
    memcpy(grown, memory, old_size);
    free(memory);
    return grown;
}
