// The terminal of a command.
#include "CLinux.h"

#include <sys/ioctl.h>

int linux_terminal_columns(int fd) {
    struct winsize size = {0};
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
