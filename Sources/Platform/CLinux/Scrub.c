#define _GNU_SOURCE
#include "CLinux.h"

#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

// The C library copies through vector registers and leaves the data there. A signal puts them on the stack.
#define LOW(each) \
    each(0) each(1) each(2) each(3) each(4) each(5) each(6) each(7) each(8) each(9) each(10) each(11) each(12) each(13) \
        each(14) each(15)
#define HIGH(each) \
    each(16) each(17) each(18) each(19) each(20) each(21) each(22) each(23) each(24) each(25) each(26) each(27) each(28) \
        each(29) each(30) each(31)

#if defined(__x86_64__)
#define ZERO_SSE(n) __asm__ volatile("pxor %%xmm" #n ", %%xmm" #n ::: "xmm" #n);
#define ZERO_AVX512(n) __asm__ volatile("vpxorq %%zmm" #n ", %%zmm" #n ", %%zmm" #n ::: "zmm" #n);

// The first sixteen, whole (Intel SDM volume 2, VZEROALL): AVX has no other way for their upper halves that is not
// AVX2's.
__attribute__((target("avx"))) static void zero_avx(void) {
    __asm__ volatile("vzeroall" ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                     "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

__attribute__((target("avx512f"))) static void zero_avx512(void) { HIGH(ZERO_AVX512) }

static void zero_vector_registers(void) {
    LOW(ZERO_SSE)
    if (__builtin_cpu_supports("avx512f")) zero_avx512();
    if (__builtin_cpu_supports("avx")) zero_avx();
}
#elif defined(__aarch64__)
#define ZERO(n) __asm__ volatile("movi v" #n ".2d, #0" ::: "v" #n);

static void zero_vector_registers(void) { LOW(ZERO) HIGH(ZERO) }
#else
static void zero_vector_registers(void) {}
#endif

// The lowest address of the calling thread's stack. NULL if unknown: without /proc, or without memory.
static __attribute__((noinline)) char *lowest_of_stack(void) {
    pthread_attr_t attributes;
    void *lowest;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return NULL;
    int known = pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    return known == 0 ? lowest : NULL;
}

// The size of the stack that may be zeroed. The stack may be smaller than wanted, and this function needs some of it.
static __attribute__((noinline)) size_t unused_stack(void) {
    enum { deepest = 128 << 10, margin = 8 << 10, shallowest = 16 << 10 };
    static _Thread_local char *lowest;
    if (!lowest) lowest = lowest_of_stack();
    if (!lowest) return shallowest;
    char *here = __builtin_frame_address(0);
    if (here < lowest + margin) return 0;
    size_t unused = (size_t)(here - lowest) - margin;
    return unused < deepest ? unused : deepest;
}

static __attribute__((noinline)) void zero_stack(size_t size) { explicit_bzero(alloca(size), size); }

// Its own frame is not zeroed and overlies older frames, so it must be tiny.
__attribute__((noinline)) void linux_scrub_thread(void) {
    static _Thread_local sigset_t all, before;
    // A signal that comes meanwhile would save the registers below all that is zeroed.
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    zero_stack(unused_stack());
    zero_vector_registers();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
