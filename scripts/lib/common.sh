# Sourced by the scripts: their options, their builds, and what they need from the machine. Sets `root` to the project's
# directory and `script` to the script's path.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script=$(realpath -- "$0")
swift_needed=6.2

build_packages="fuse3 libfuse3-dev libssl-dev pkg-config gcc g++ libc6-dev git ca-certificates"
package_packages="binutils dpkg-dev lowdown python3"
demo_packages="sqlite3 ffmpeg openssl"
check_packages="shellcheck python3"
test_packages="sqlite3 strace ffmpeg openssl fio attr acl maildrop procmail openssh-client openssh-sftp-server curl bindfs rsync tar python3 python3-cryptography util-linux e2fsprogs man-db dpkg-dev lowdown binutils gocryptfs encfs swtpm tpm2-tools fido2-tools systemd dbus python3-gi python3-dbusmock"

# stop MESSAGE: one line on standard error, exit code 1.
stop() {
    echo "${script#"$root/scripts/"}: $*" >&2
    exit 1
}

# usage: stops with the lines from "usage:" to the end of the script's first comment.
usage() { stop "$(sed -n '/^# usage: /,/^[^#]/s/^# //p' "$script")"; }

# take_options "NAME..." ARGUMENT...: sets the variable NAME for each `--NAME VALUE`. Stops if there is anything else.
take_options() {
    local names=$1
    shift
    while [ $# -gt 0 ]; do
        [[ $# -ge 2 && $1 = --* && " $names " = *" ${1#--} "* ]] || usage
        printf -v "${1#--}" %s "$2"
        shift 2
    done
}

# as_root COMMAND...: runs the command as root, through sudo for another user.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null; then
        stop "needs root for: $* (no sudo here)"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@" </dev/null || stop "needs root for: $*"
    fi
}

# install_missing PACKAGE...: installs the packages that dpkg does not list as installed. Does nothing if none is
# missing.
install_missing() {
    local package missing=
    command -v dpkg-query >/dev/null || { echo "${script##*/}: no dpkg here, taking for granted: $*" >&2; return; }
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    echo "installing:$missing"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null >/dev/null \
        || stop "apt-get update failed"
    # shellcheck disable=SC2086  # a list of package names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing </dev/null >/dev/null \
        || stop "could not install:$missing"
}

# need_swift: stops if there is no Swift compiler, or if it is too old.
need_swift() {
    local found
    command -v swift >/dev/null || stop "needs Swift $swift_needed or later, and there is no swift in PATH (https://swift.org/install)"
    found=$(swift --version 2>/dev/null | sed -n 's/.*Swift version \([0-9][0-9.]*\).*/\1/p' | head -n 1)
    [ -n "$found" ] || stop "needs Swift $swift_needed or later, and \`swift --version\` says nothing of the kind"
    [ "$(printf '%s\n' "$swift_needed" "$found" | sort -V | head -n 1)" = "$swift_needed" ] \
        || stop "needs Swift $swift_needed or later, and this is $found"
}

# build_release PRODUCT...: builds the products. Sets `binaries` to their directory.
build_release() {
    local product
    need_swift
    # shellcheck disable=SC2086  # a list of package names
    install_missing $build_packages >&2
    for product in "$@"; do swift build --package-path "$root" -c release --product "$product" </dev/null >&2; done
    binaries=$(swift build --package-path "$root" -c release --show-bin-path)
}

# need_binary: sets `binary` to the path of a release build, unless an option has set it.
need_binary() {
    if [ -n "$binary" ]; then
        binary=$(realpath -- "$binary")
    else
        build_release vaultfs
        binary=$binaries/vaultfs
    fi
}

# build_tests: builds the tests in a scratch path of their own. Sets `bundle` to the program that runs them.
build_tests() {
    need_swift
    # shellcheck disable=SC2086  # a list of package names
    install_missing $build_packages
    swift build --package-path "$root" --build-tests -c release --scratch-path "$root/.build/tests" \
        -Xswiftc -enable-testing -Xswiftc -assert-config -Xswiftc Debug </dev/null
    # shellcheck disable=SC2034  # for the script
    bundle=$root/.build/tests/release/vaultfsPackageTests.xctest
}

# need_fuse: stops, with the reason, if this user cannot mount.
need_fuse() {
    command -v fusermount3 >/dev/null || stop "fusermount3 is missing (Debian: apt install fuse3)"
    [ -e /dev/fuse ] || stop "/dev/fuse is absent: load the kernel module (modprobe fuse); a container needs --device /dev/fuse"
    [ -c /dev/fuse ] || stop "/dev/fuse is not a character device"
    if ! { : 3<>/dev/fuse; } 2>/dev/null; then
        if [ "$(id -u)" = 0 ]; then
            stop "/dev/fuse refuses root: a container needs --device /dev/fuse --cap-add SYS_ADMIN"
        fi
        stop "/dev/fuse is not open to $(id -un) ($(stat -c '%A %U:%G' /dev/fuse)): make it 0666, as udev does, or run as root"
    fi
}

# python_with_cryptography: prints the Python that runs the independent reader.
python_with_cryptography() {
    if /usr/bin/python3 -c 'import cryptography' 2>/dev/null; then echo /usr/bin/python3; else echo python3; fi
}

# own_mounts: prints the command that runs another one in its own mount namespace, if this user may make one. A
# namespace that another process makes meanwhile would otherwise keep our mounts, and so their daemons, after we have
# unmounted them.
own_mounts() {
    if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then echo unshare --mount --propagation private; fi
}
