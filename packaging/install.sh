#!/bin/sh
# Copies vaultfs from this archive to a prefix, and prints the path of each copied file. With --uninstall it removes the
# same files, and the directories that only vaultfs uses. The files name paths below /usr; the copies name the prefix.
#
# --destdir is for packagers: files go to a directory that becomes the root of another system. The libraries that the
# program needs are looked for only without it.
# usage: ./install.sh [--uninstall] [--prefix DIRECTORY] [--destdir DIRECTORY]
set -eu
umask 022
export LC_ALL=C

usage="usage: ./install.sh [--uninstall] [--prefix DIRECTORY] [--destdir DIRECTORY] (default prefix: /usr/local)"
prefix=/usr/local
destdir=
uninstall=
unfinished=

# stop MESSAGE: one line on standard error, exit code 1.
stop() {
    echo "install.sh: $*" >&2
    exit 1
}

trap '[ -z "$unfinished" ] || rm -f -- "$unfinished"' EXIT
trap 'exit 1' HUP INT TERM

while [ $# -gt 0 ]; do
    case $1 in
        --help)
            echo "$usage"
            exit
            ;;
        --uninstall) uninstall=yes ;;
        --prefix=*) prefix=${1#*=} ;;
        --destdir=*) destdir=${1#*=} ;;
        --prefix | --destdir)
            [ $# -ge 2 ] || stop "$usage"
            if [ "$1" = --prefix ]; then prefix=$2; else destdir=$2; fi
            shift
            ;;
        *) stop "$usage" ;;
    esac
    shift
done
case $prefix in
    *[!A-Za-z0-9/._+-]*) stop "units and scripts contain the prefix, so it can have only letters, digits and /._+-: $prefix" ;;
    /*) ;;
    *) stop "the prefix must begin with a slash: $prefix" ;;
esac
case $destdir in
    '' | /*) ;;
    *) destdir=$PWD/$destdir ;;
esac
while [ "$prefix" != "${prefix%/}" ]; do prefix=${prefix%/}; done
while [ "$destdir" != "${destdir%/}" ]; do destdir=${destdir%/}; done

cd "$(dirname -- "$0")"
[ -f bin/vaultfs ] || stop "run it in the unpacked archive: there is no bin/vaultfs beside it"
files=$(find bin lib share -type f | sort)

# The paths of vaultfs's own files in its pages, units and scripts.
own='/usr/(bin/vaultfs|share/(doc/|applications/)?vaultfs|lib/systemd/(system|user)/vaultfs)'

# check_libraries: stops unless the program runs here.
check_libraries() {
    missing=$(ldd bin/vaultfs 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | sort -u | tr '\n' ' ') || true
    [ -z "$missing" ] || stop "missing libraries: ${missing% }: install OpenSSL 3 (Debian: apt install fuse3 openssl)"
    failure=$(bin/vaultfs --version 2>&1 >/dev/null) \
        || stop "bin/vaultfs does not run on this system: $(printf '%s\n' "$failure" | tail -n 1)"
}

# copied FILE: prints the file, with the prefix in it.
copied() {
    case $1 in
        bin/vaultfs | lib/vaultfs/*) cat "$1" ;;
        *.gz) gzip -dc "$1" | sed -E "s,$own,$prefix/\\1,g" | gzip -9n ;;
        *) sed -E "s,$own,$prefix/\\1,g" "$1" ;;
    esac
}

# install_file FILE: copies it under another name first, so an interrupted run leaves the former file whole.
install_file() {
    target=$destdir$prefix/$1
    mode=644
    case $1 in bin/*) mode=755 ;; esac
    mkdir -p -- "${target%/*}" 2>/dev/null || stop "cannot make the directory ${target%/*}: run it as root, or give another --prefix"
    [ ! -d "$target" ] || stop "$target is a directory: move it away"
    [ -w "${target%/*}" ] || stop "cannot write to ${target%/*}: run it as root, or give another --prefix"
    unfinished=${target%/*}/.vaultfs-install.$$
    { copied "$1" >"$unfinished" && chmod "$mode" "$unfinished" && mv -f -- "$unfinished" "$target"; } 2>/dev/null \
        || stop "cannot write $target"
    unfinished=
    echo "$target"
}

# remove_file FILE: removes its copy. Adds to `removed` if there was one.
remove_file() {
    target=$destdir$prefix/$1
    if [ -e "$target" ] || [ -L "$target" ]; then
        rm -f -- "$target" 2>/dev/null || stop "cannot remove $target: run it as root"
        removed=$((removed + 1))
        echo "$target"
    fi
}

if [ -n "$uninstall" ]; then
    removed=0
    while IFS= read -r file; do remove_file "$file"; done <<END
$files
END
    [ "$removed" -gt 0 ] || stop "none of the archive's files is below ${destdir}$prefix/: give the --prefix of the installation"
    find lib share -depth -type d -path '*vaultfs*' | while IFS= read -r directory; do
        rmdir -- "$destdir$prefix/$directory" 2>/dev/null || true
    done
else
    [ -n "$destdir" ] || check_libraries
    while IFS= read -r file; do install_file "$file"; done <<END
$files
END
    if [ -z "$destdir" ] && ! command -v fusermount3 >/dev/null; then
        echo "install.sh: fusermount3 is missing, and users other than root need it to mount (Debian: apt install fuse3)" >&2
    fi
fi
if [ -z "$destdir" ] && [ -d /run/systemd/system ]; then echo "now run 'systemctl daemon-reload', for the units"; fi
