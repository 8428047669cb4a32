# Sourced by the scripts: their options, their builds, and what they need from the machine. Sets `root` to the project's
# directory and `script` to the script's path.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script=$(realpath -- "$0")
# The modules of the tests' programs.
export PYTHONPATH=$root/Tests/Support/Programs/modules
swift_needed=6.2

# Libraries that swift.org's compiler loads. curl brings libcurl, whose own package has another name in Debian 13.
swift_packages="curl libncurses6 libsqlite3-0 libxml2"
build_packages="$swift_packages fuse3 libfuse3-dev libssl-dev pkg-config gcc g++ libc6-dev git ca-certificates"
package_packages="binutils dpkg-dev lowdown python3"
demo_packages="sqlite3 ffmpeg openssl"
check_packages="shellcheck python3"

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

# install_missing PACKAGE...: installs the packages that dpkg does not list as installed, with apt, through sudo for an
# ordinary user. Says what it installs. Does nothing if none is missing.
install_missing() {
    local package missing='' request log become=()
    command -v dpkg-query >/dev/null || { echo "${script##*/}: no dpkg here, taking for granted: $*" >&2; return; }
    for package in "$@"; do
        # The lists overlap.
        case " $missing " in *" $package "*) continue ;; esac
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -x installed >/dev/null || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    request="ask an administrator for: apt-get install --no-install-recommends$missing"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || stop "packages are missing, and there is no sudo: $request"
        become=(sudo)
        [ -t 0 ] || become+=(-n)
    fi
    echo "installing with apt:$missing"
    become+=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
    # The log is shown after a failure only. sudo asks for a password on the terminal, which is neither.
    # shellcheck disable=SC2086  # a list of package names
    log=$({ "${become[@]}" update && "${become[@]}" install -y --no-install-recommends $missing; } </dev/null 2>&1) || {
        tail -n 5 <<<"$log" >&2
        stop "could not install them; $request"
    }
}

# need_swift PACKAGE...: stops if there is no Swift in PATH. Installs the packages, and those that Swift needs. Stops if
# Swift does not start, or is too old.
need_swift() {
    local answer found
    command -v swift >/dev/null || stop "needs Swift $swift_needed or later, and there is no swift in PATH (https://swift.org/install)"
    # shellcheck disable=SC2086  # a list of package names
    install_missing $swift_packages "$@"
    answer=$(swift --version 2>&1 </dev/null) \
        || stop "swift does not start: $(grep -m 1 'shared libraries' <<<"$answer" || head -n 1 <<<"$answer")"
    found=$(sed -n 's/.*Swift version \([0-9][0-9.]*\).*/\1/p' <<<"$answer" | head -n 1)
    [ -n "$found" ] || stop "needs Swift $swift_needed or later, and \`swift --version\` says nothing of the kind"
    [ "$(printf '%s\n' "$swift_needed" "$found" | sort -V | head -n 1)" = "$swift_needed" ] \
        || stop "needs Swift $swift_needed or later, and this is $found"
}

# build_release PRODUCT...: builds the products. Sets `binaries` to their directory.
build_release() {
    local product
    # shellcheck disable=SC2086  # a list of package names
    need_swift $build_packages >&2
    for product in "$@"; do swift build --package-path "$root" -c release --product "$product" </dev/null >&2; done
    binaries=$(swift build --package-path "$root" -c release --show-bin-path)
}

# build_program: builds the program that the package contains, with the Swift runtime in it. Sets `binary` to its path. Its
# scratch path is its own, because the objects of an ordinary release build differ.
build_program() {
    echo "building, which takes some minutes the first time; a warning about mktemp concerns a part of Foundation that vaultfs does not call" >&2
    VAULTFS_COMMIT=$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || true)
    export VAULTFS_COMMIT
    # The program is the same in each directory. It has no path of it, no hashes of the modules' intermediate code, and no
    # build ID: that is a hash over debug information too, which differs between builds and is removed from the package.
    swift build --package-path "$root" -c release --static-swift-stdlib --product vaultfs --scratch-path "$root/.build/static" \
        -Xswiftc -file-prefix-map -Xswiftc "$root=." -Xcc "-ffile-prefix-map=$root=." \
        -Xswiftc -Xfrontend -Xswiftc -disable-incremental-llvm-codegen -Xlinker --build-id=none </dev/null
    binary=$(realpath "$root/.build/static/release/vaultfs")
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
    # shellcheck disable=SC2086  # a list of package names
    need_swift $build_packages
    swift build --package-path "$root" --build-tests -c release --scratch-path "$root/.build/tests" \
        -Xswiftc -enable-testing -Xswiftc -assert-config -Xswiftc Debug </dev/null
    # shellcheck disable=SC2034  # for the script
    bundle=$root/.build/tests/release/vaultfsPackageTests.xctest
}

# build_debug_tests: the same, without optimization, which is soon built again after an edit.
build_debug_tests() {
    swift build --package-path "$root" --build-tests --scratch-path "$root/.build/debug-tests" </dev/null
    # shellcheck disable=SC2034  # for the script
    bundle=$root/.build/debug-tests/debug/vaultfsPackageTests.xctest
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
