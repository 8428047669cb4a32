# Sourced by the scripts beside it: the package, namespaces, and a Debian that debootstrap makes. All of it needs root.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
package=''
# The release of Debian that make_debian makes.
suite=bookworm
isolated=(unshare --mount --pid --fork --kill-child --mount-proc --propagation private)

# build_package: sets `package` to a new package, unless an option has set it.
build_package() {
    # The last line is the package's path.
    [ -n "$package" ] || package=$("$root/scripts/package" </dev/null | tee >(cat >&2) | tail -n 1)
    package=$(realpath -- "$package")
}

# isolate ARGUMENT...: starts the script again in namespaces with which its processes and mounts end.
isolate() { VAULTFS_ISOLATED=yes exec "${isolated[@]}" "$script" "$@"; }

# find_toolchain: sets `toolchain` to Swift's directory, whose usr/lib/swift has the runtime.
find_toolchain() {
    toolchain=$(swift -print-target-info </dev/null | sed -n 's|.*"runtimeResourcePath": "\(.*\)/usr/lib/swift".*|\1|p')
    [ -n "$toolchain" ] || stop "needs Swift in a directory of its own: that of a new Debian is mounted there"
}

# unmount_below DIRECTORY: removes the mounts below it.
unmount_below() {
    awk -v directory="$1/" 'index($2, directory) == 1 { print $2 }' /proc/self/mounts | sort -r | xargs -r umount -l
}

# make_debian DIRECTORY PACKAGES [COMMAND...]: makes a Debian from the mirror that apt uses here. COMMAND runs
# debootstrap. The log is in $work.
make_debian() {
    local tree=$1 packages=$2 mirror
    shift 2
    # shellcheck disable=SC2016  # apt's own variables
    mirror=$(apt-get indextargets --format '$(LABEL) $(SITE)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
    [ -n "$mirror" ] || stop "apt here has no Debian mirror"
    echo "debootstrap: $suite"
    timeout -k 5 1800 "$@" debootstrap --variant=minbase ${packages:+"--include=$packages"} "$suite" "$tree" "$mirror" >"$work/log" 2>&1 \
        || { tail -n 5 "$work/log" >&2; stop "debootstrap failed"; }
}

# install_package DIRECTORY PACKAGE...: installs the package, and more, in that Debian.
install_package() {
    local tree=$1
    shift
    cp "$package" "$tree/root/vaultfs.deb"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot "$tree" timeout -k 5 300 \
        apt-get install -y -q --no-install-recommends /root/vaultfs.deb "$@" </dev/null >"$work/log" 2>&1 \
        || { tail -n 5 "$work/log" >&2; stop "the package does not install"; }
}

# open_fuse PATH: mounts a new device node on PATH, open to all as udev makes it.
open_fuse() {
    mkdir "$work/device"
    # A file system that allows device nodes.
    mount -t tmpfs -o mode=755 none "$work/device"
    mknod "$work/device/fuse" c 10 229
    chmod 666 "$work/device/fuse"
    mount --bind "$work/device/fuse" "$1"
    umount -l "$work/device"
}

# find_machine: sets `start_machine` to the command that starts User Mode Linux. On a processor with AMX it needs
# uml_registers.c, which says why.
find_machine() {
    start_machine=(linux.uml)
    grep -q amx_tile /proc/cpuinfo || return 0
    gcc -O2 -shared -fPIC -o "$work/registers.so" "$root/scripts/system/uml_registers.c"
    # shellcheck disable=SC2034  # for the script
    start_machine=(env "LD_PRELOAD=$work/registers.so" linux.uml)
}
