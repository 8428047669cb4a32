// Virtual terminals for lightdm, in a machine whose kernel has none (scripts/system/session). lightdm asks for the active
// one to know which of its X servers a person sees. Without an answer it would show the greeter again after each unlock.
#define _GNU_SOURCE
#include <linux/vt.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned short active = 1;

int ioctl(int descriptor, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    switch (request) {
    case VT_GETSTATE: ((struct vt_stat *)argument)->v_active = active; return 0;
    case VT_ACTIVATE: active = (unsigned short)(long)argument; return 0;
    case VT_WAITACTIVE: return 0;
    default: return (int)syscall(SYS_ioctl, descriptor, request, argument);
    }
}
