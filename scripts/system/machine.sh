# Sourced by the scripts beside it: the package, namespaces, and a Debian that debootstrap makes. All of it needs root.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
package=''
# The release of Debian that make_debian makes.
suite=bookworm
# The sizes of the machine that make_machine makes.
disk_size=2G
memory_size=900M
isolated=(unshare --mount --pid --fork --kill-child --mount-proc --propagation private)

# build_package: sets `package` to a new package, unless an option has set it.
build_package() {
    # The last line is the package's path.
    [ -n "$package" ] || package=$("$root/scripts/package" </dev/null | tee >(cat >&2) | tail -n 1)
    package=$(realpath -- "$package")
}

# isolate ARGUMENT...: runs the script again in namespaces with which its processes and mounts end, and exits with its code.
isolate() {
    local inside code
    VAULTFS_ISOLATED=yes setpriv --pdeathsig KILL "${isolated[@]}" "$script" "$@" <&0 &
    inside=$!
    # unshare(1) blocks SIGINT and SIGTERM, so its child must get them: the script in the namespaces.
    trap 'pkill -TERM -P "$inside" || true' INT TERM HUP
    while true; do
        code=0
        wait "$inside" || code=$?
        # A signal ends the wait before the script has ended.
        kill -0 "$inside" 2>/dev/null || exit "$code"
    done
}

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

# make_machine DIRECTORY PROGRAM: makes a disk of that Debian, for a machine that boots with systemd. Once it is up, it runs
# PROGRAM, of Tests/Support/Programs, and shuts down.
make_machine() {
    local tree=$1 program=$2
    find_machine
    umount -l "$tree/proc" "$tree/sys" 2>/dev/null || true
    mkdir -p "$work/out" "$work/memory" "$tree/lib/modules" "$tree/mnt/out"
    cp -a /usr/lib/uml/modules/* "$tree/lib/modules/"
    cp "$root/Tests/Support/Programs/$program" "$tree/root/program"
    echo fuse >"$tree/etc/modules-load.d/fuse.conf"
    echo trial >"$tree/etc/hostname"
    echo '127.0.0.1 localhost trial' >"$tree/etc/hosts"
    echo '/dev/ubda / ext4 defaults 0 1' >"$tree/etc/fstab"
    cat >"$tree/etc/systemd/system/trial.service" <<'UNIT'
[Unit]
Description=What is tried
Wants=multi-user.target
After=multi-user.target
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Type=oneshot
TimeoutStartSec=30min
ExecStart=/bin/bash /root/trial
UNIT
    cat >"$tree/root/trial" <<'TRIAL'
# The kernel's command line names the stage and the directory for its output.
for word in $(cat /proc/cmdline); do case $word in trial.*) declare "${word#trial.}" ;; esac; done
mount -t hostfs none /mnt/out -o "$out" || exit
{
    bash /root/program "$stage"
    code=$?
    [ $code = 0 ] || journalctl -q -b --no-pager | tail -n 60
} >"/mnt/out/$stage" 2>&1 </dev/null
echo $code >"/mnt/out/$stage.code"
umount /mnt/out
TRIAL
    truncate -s "$disk_size" "$work/root"
    mke2fs -q -t ext4 -d "$tree" "$work/root"
}

# boot_machine STAGE SECONDS: boots the machine of make_machine, whose program runs STAGE, and prints its output. Stops if it
# fails.
boot_machine() {
    HOME=$work TMPDIR=$work/memory timeout -k 5 "$2" "${start_machine[@]}" "mem=$memory_size" "umid=$1" "ubd0=$work/root" root=/dev/ubda rw \
        init=/lib/systemd/systemd systemd.unit=trial.service panic=-1 con=null con0=null,fd:1 ssl=null \
        "trial.stage=$1" "trial.out=$work/out" </dev/null >"$work/console" 2>&1 || true
    [ ! -e "$work/out/$1" ] || sed 's/^/  /' "$work/out/$1"
    [ "$(cat "$work/out/$1.code" 2>/dev/null)" = 0 ] || {
        tail -n 40 "$work/console" >&2
        stop "$1: did not hold"
    }
}
