// The terminal of a command: its width, and asking without echo.
#include "CLinux.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

int linux_terminal_columns(int fd) {
    struct winsize size = {0};
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// The signals that end or stop the program. The terminal's state is restored first.
static const int leaving[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
enum { leaving_count = sizeof leaving / sizeof *leaving };

static struct {
    int fd;
    struct termios shown;
    struct sigaction before[leaving_count];
    sigset_t mask;
    const char *_Atomic question;
} silence;

static sigset_t leaving_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < leaving_count; i++) sigaddset(&set, leaving[i]);
    return set;
}

// TCSAFLUSH discards what was typed before.
static int set_echo(int echoes) {
    struct termios state = silence.shown;
    if (!echoes) state.c_lflag &= ~(tcflag_t)ECHO;
    return tcsetattr(silence.fd, TCSAFLUSH, &state);
}

static void show(const char *text) {
    // The result does not matter: a terminal that has hung up ends the read.
    ssize_t written = write(silence.fd, text, strlen(text));
    (void)written;
}

// A signal handler, in which every call is one of signal-safety(7). It runs also while an answer is tried, on any thread.
static void leave(int number) {
    int error = errno;
    set_echo(1);
    show("\n");
    struct sigaction ours;
    for (int i = 0; i < leaving_count; i++) {
        if (leaving[i] == number) sigaction(number, &silence.before[i], &ours);
    }
    raise(number);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    // Here the program ends, or stops until SIGCONT.
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaction(number, &ours, NULL);
    set_echo(0);
    const char *question = silence.question;
    if (question) show(question);
    errno = error;
}

int linux_begin_silence(int fd) {
    if (tcgetattr(fd, &silence.shown) != 0) return -1;
    silence.fd = fd;
    sigset_t set = leaving_set();
    pthread_sigmask(SIG_BLOCK, &set, &silence.mask);
    struct sigaction action = {.sa_handler = leave, .sa_mask = set, .sa_flags = SA_RESTART};
    for (int i = 0; i < leaving_count; i++) {
        sigaction(leaving[i], &action, &silence.before[i]);
        // Such as SIGHUP for nohup(1).
        if (silence.before[i].sa_handler == SIG_IGN) sigaction(leaving[i], &silence.before[i], NULL);
    }
    int result = set_echo(0);
    int error = errno;
    // Even if our parent has blocked them: ^C must end the program at the first question too.
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    if (result != 0) linux_end_silence();
    errno = error;
    return result;
}

void linux_set_question(const char *question) {
    silence.question = question;
    if (question) show(question);
}

void linux_end_silence(void) {
    sigset_t set = leaving_set();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    set_echo(1);
    for (int i = 0; i < leaving_count; i++) sigaction(leaving[i], &silence.before[i], NULL);
    pthread_sigmask(SIG_SETMASK, &silence.mask, NULL);
}
