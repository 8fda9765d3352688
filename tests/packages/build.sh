#!/bin/bash
# build.sh DIR: a Debian 12 that has nothing but what every Debian has, as DIR/debian.tar. Debian's own packages of DAPL
# lie in apt's cache in it, not installed: whoever unpacks it needs no network. Nothing is done again that is there.
# Exit status 77: the packages cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
exec 9>lock
flock 9

suite=bookworm
dapl="libdapl2 libdapl-dev dapl2-utils"

main() {
    local hash mirror
    hash=$(sha256sum <"$here/build.sh")
    if [ "$(cat of 2>/dev/null)" = "$hash" ]; then
        return
    fi
    rm -rf root of
    mirror=$(mirror)
    [ -n "$mirror" ] || { echo "apt has no source of Debian's $suite"; exit 77; }
    # As debootstrap does, and whoever unpacks it.
    mknod device c 1 3 2>/dev/null || { echo "this user may not make devices"; exit 77; }
    rm device
    echo "debootstrap $suite"
    # In two steps, of which the first is all that needs the network.
    debootstrap --variant=minbase --download-only "$suite" root "$mirror" >log 2>&1 || { tail -n 1 log; exit 77; }
    debootstrap --variant=minbase "$suite" root "$mirror" >log 2>&1 || { tail -n 20 log; exit 1; }
    in_root apt-get -q clean
    in_root apt-get -q update >log 2>&1 || { tail -n 1 log; exit 77; }
    in_root apt-get -q -y --no-install-recommends --download-only install $dapl >log 2>&1 || { tail -n 1 log; exit 77; }
    tar -C root --numeric-owner -cf debian.tar .
    rm -rf root log
    echo "$hash" >of
}

# Where this host has its own packages from.
mirror() {
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$suite" '$1 == suite && $2 == "main" { print $3; exit }'
}

in_root() {
    env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot root "$@"
}

main
