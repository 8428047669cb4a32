#!/bin/bash
# fresh_use.sh USER STORY: README's commands, in the user's clone on a bare Debian. Each command must end with the code that
# README promises and print nothing else than it promises. root starts it, and is the administrator whom the scripts ask
# for packages if there is no sudo.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
user=$1 story=$2

for name in ada bob; do
    id $name >/dev/null 2>&1 || { useradd --shell /bin/bash $name 2>/dev/null && chown -R $name: /home/$name; }
done
home=$(getent passwd "$user" | cut -d : -f 6)
output=/var/log/output errors=/var/log/errors
# as_user COMMAND...: runs the command in the user's clone.
as_user() {
    local become=()
    [ "$user" = root ] || become=(setpriv "--reuid=$user" "--regid=$user" --init-groups --)
    "${become[@]}" env -C "$home/vaultfs" HOME="$home" USER="$user" "$@" </dev/null
}
fail() {
    echo "$user: $*" >&2
    exit 1
}
# run CODE PATTERN COMMAND...: runs the command as the user. It must end with the code. Each line on standard error must
# match one line of the pattern (extended regular expressions for whole lines). Its output stays in $output.
run() {
    local code=$1 pattern=$2 found=0
    shift 2
    as_user "$@" >"$output" 2>"$errors" || found=$?
    only "$pattern" "$errors"
    [ "$found" = "$code" ] || { tail -n 20 "$output" "$errors" >&2; fail "$*: exit code $found instead of $code"; }
}
# only PATTERN FILE: fails if the file has other lines.
only() {
    local more
    more=$(grep -vxE -- "$1" "$2" || true)
    [ -z "$more" ] || { printf '%s\n' "$more" | head -n 20 >&2; fail "README does not promise these lines, of $(basename "$2")"; }
}
# promise CODE PATTERN COMMAND...: the same, for standard output too.
promise() {
    local pattern=$2
    run "$@"
    only "$pattern" "$output"
}

installing='installing with apt:( [a-z0-9.+-]+)+'
# The linker's lines about mktemp: one, or three from binutils 2.44 on.
building='building, which takes .*|.*warning: .*mktemp.*|.*/libFoundationEssentials\.a\(.*: (note: .*|in function .*)'
build='(Fetching|Fetched|Updating|Updated|Computing version for|Computed|Creating working copy for|Working copy of) .*
(\[[0-9/]+\] .*|Building for production\.\.\.|Build (of product )?.*complete! .*)'
nothing='$.'

# administer COMMAND...: the command of apt that a message names, run by the administrator.
administer() {
    apt-get -q update >/var/log/administrator 2>&1
    DEBIAN_FRONTEND=noninteractive "$@" -y -q >>/var/log/administrator 2>&1 </dev/null || { tail -n 5 /var/log/administrator >&2; fail "the administrator: $*"; }
}

# refused SCRIPT...: without packages and sudo, the script says in one line what to ask an administrator for. The
# administrator does it.
refused() {
    local ask='[a-z]+: packages are missing, and there is no sudo: ask an administrator for: (apt-get install [a-z0-9.+ -]+)'
    run 1 "$ask" "$@"
    [ "$(wc -l <"$errors")" = 1 ] && [ ! -s "$output" ] || fail "$*: one line was promised"
    # shellcheck disable=SC2046  # a command with its arguments
    administer $(sed -E "s/^$ask\$/\1/" "$errors")
}

# without_swift SCRIPT...: without Swift, the script says so and installs nothing.
without_swift() {
    promise 1 '[a-z]+: needs Swift [0-9.]+ or later, and there is no swift in PATH .*' env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# demo PATTERN COMMAND...: runs the demo, which shows the warnings and errors of vaultfs too.
demo() {
    run 0 "vaultfs: .*|$1" "${@:2}"
    grep . "$output" | tail -n 1 | grep -x "── done; the demo's directory is removed" >/dev/null || fail "the demo has no end"
    [ -z "$(find /tmp -name 'vaultfs-demo*')" ] || fail "the demo left files"
}

# Section "Two commands".
two_commands() {
    local passphrase='correct horse battery staple'
    type_passphrase() { promise 0 "$1" python3 /fresh_type "$passphrase" env -C "$home" "${@:2}"; }
    type_passphrase "(New passphrase|The same again|Recovery key).*|[0-9A-Za-z -]*|Whoever has it can open .*
Made a vault in $home/Vault\. Mount it:|  vaultfs mount $home/Vault $home/Private" vaultfs init "$home/Vault"
    type_passphrase 'Passphrase.*|.*/Private: mounted from .*/Vault' vaultfs mount "$home/Vault" "$home/Private"
    as_user sh -c "echo content >'$home/Private/file'"
    promise 0 '.*/Private: locked.*' vaultfs lock
    promise 1 'cat: .*/Private/file: Required key not available' cat "$home/Private/file"
    promise 0 '.*/Private: unlocked' vaultfs unlock
    promise 0 content cat "$home/Private/file"
    promise 0 '.*/Private: unmounted.*' vaultfs unmount --all
    [ ! -e "$home/Private" ] || fail "unmounted, and the directory that mount made is there"
}

install_built() {
    local install=(apt install)
    [ "$user" != ada ] || install=(sudo apt install)
    # apt asks before it installs more than was named.
    install+=(-y)
    [ "$user" = bob ] || { run 0 '.*' env DEBIAN_FRONTEND=noninteractive "${install[@]}" "$package"; return; }
    administer "${install[@]}" "$home/vaultfs/$package"
}

case $story in
    everything)
        for script in demo package check test; do without_swift scripts/$script; done
        case $user in
            ada)
                administer apt-get install sudo
                echo 'ada ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/ada
                ;;
            bob)
                refused scripts/format --lint
                promise 0 "$nothing" scripts/format --lint
                for script in package demo; do refused scripts/$script; done
                ;;
        esac
        promise 0 "$installing
$building
$build
/.*\.deb" scripts/package
        package=./.build/package/$(basename "$(tail -n 1 "$output")")
        install_built
        two_commands
        demo "$installing|$building" scripts/demo
        ;;
    test)
        run 0 '.*' scripts/test
        grep -xE '[0-9]+ passed, 0 failed|mounts made: [0-9]+' "$output"
        ;;
    refused-demo)
        without_swift scripts/demo
        refused scripts/demo --binary /usr/local/bin/vaultfs
        ;;
    short-demo) demo "$nothing" scripts/demo --binary /usr/local/bin/vaultfs ;;
    *) fail "no story: $story" ;;
esac
