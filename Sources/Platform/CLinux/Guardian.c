#define _GNU_SOURCE
#include "CLinux.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct linux_guardian {
    pid_t process;
    // The connection's number in fusectl, 0 while there is none.
    _Atomic unsigned connection;
    // True when it has its own name and no descriptor of the daemon.
    _Atomic int is_apart;
    // True when it has tried to open the connection's file.
    _Atomic int has_answered;
};

// Signals that nothing else uses.
#define PARENT_DIED (SIGRTMIN + 7)
#define CONNECTION_KNOWN (SIGRTMIN + 8)

static void pause_milliseconds(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

// True if threads of the process remain after its first one ended.
static int is_stuck(pid_t process) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    if (!tasks) return 0;
    int threads = 0;
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (entry->d_name[0] != '.') threads++;
    closedir(tasks);
    return threads > 1;
}

// True if the first thread of the process has ended: proc_pid_stat(5), the field after the name in parentheses.
static int has_ended(pid_t process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 1;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 1;
    text[size] = 0;
    const char *state = strrchr(text, ')');
    return !state || !state[1] || strchr("ZX", state[2]);
}

static int open_abort(unsigned connection) {
    char path[64];
    snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", connection);
    return open(path, O_WRONLY | O_CLOEXEC);
}

// If fusectl is not mounted, root can mount it in a namespace of its own. The namespace must not stay: it has copies of
// all mounts, and would keep them after their unmount.
static int open_abort_apart(unsigned connection) {
    int home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (home < 0) return -1;
    int file = -1, is_apart = unshare(CLONE_NEWNS) == 0;
    if (is_apart && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
        && mount("none", "/sys/fs/fuse/connections", "fusectl", 0, NULL) == 0)
        file = open_abort(connection);
    if (is_apart && setns(home, CLONE_NEWNS) != 0) _exit(1);
    close(home);
    return file;
}

static _Noreturn void guard(struct linux_guardian *guardian, pid_t process) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, PARENT_DIED);
    sigaddset(&signals, CONNECTION_KNOWN);
    // Opened while the mount exists. After an unmount another mount may have the number, and the daemon, with its old
    // connection, may still be there. The open file names the old connection for good (fuse_ctl_remove_conn in
    // fs/fuse/control.c).
    int file = -1;
    while (!has_ended(process)) {
        if (sigwaitinfo(&signals, NULL) == CONNECTION_KNOWN) {
            unsigned connection = atomic_load(&guardian->connection);
            file = open_abort(connection);
            if (file < 0) file = open_abort_apart(connection);
            atomic_store(&guardian->has_answered, 1);
            continue;
        }
        // The signal comes a moment before the state changes.
        for (int tries = 0; tries < 100 && !has_ended(process); tries++) pause_milliseconds(10);
    }
    // A process that can die does so soon, and the kernel then ends its connection.
    for (int tries = 0; tries < 20; tries++) {
        if (!is_stuck(process)) _exit(0);
        pause_milliseconds(10);
    }
    if (file >= 0 && write(file, "1", 1) != 1) _exit(1);
    _exit(0);
}

struct linux_guardian *linux_start_guardian(char *arguments, size_t size) {
    struct linux_guardian *guardian =
        mmap(NULL, sizeof *guardian, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guardian == MAP_FAILED) return NULL;
    pid_t process = getpid();
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    // The child keeps a copy of this stack for as long as the mount lasts.
    linux_scrub_thread();
    pid_t child = fork();
    if (child == 0) {
        // It must not receive signals to the daemon's process group.
        setsid();
        prctl(PR_SET_PDEATHSIG, PARENT_DIED);
        prctl(PR_SET_NAME, "vaultfs-guard");
        // ps(1) must not show it as the daemon.
        static const char name[] = "vaultfs-guard";
        memset(arguments, 0, size);
        if (size >= sizeof name) memcpy(arguments, name, sizeof name);
        // It must keep nothing of the daemon open: no lock of the vault, no connection to a client, no directory.
        close_range(0, ~0U, 0);
        if (chdir("/") != 0) _exit(1);
        atomic_store(&guardian->is_apart, 1);
        guard(guardian, process);
    }
    // Otherwise a search for the daemon by name could find two processes, and a signal could reach the wrong one.
    for (int tries = 0; child > 0 && tries < 1000 && !atomic_load(&guardian->is_apart); tries++) pause_milliseconds(1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child > 0) {
        guardian->process = child;
        return guardian;
    }
    munmap(guardian, sizeof *guardian);
    return NULL;
}

void linux_guard_connection(struct linux_guardian *guardian, unsigned connection) {
    atomic_store(&guardian->connection, connection);
    if (kill(guardian->process, CONNECTION_KNOWN) != 0) return;
    for (int tries = 0; tries < 1000 && !atomic_load(&guardian->has_answered); tries++) pause_milliseconds(1);
}
