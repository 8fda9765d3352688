#!/bin/bash
# build.sh DIR: builds a minimal Debian 12 as DIR/debian.tar. Its apt cache has Debian's own DAPL
# packages, which are not installed, so that installing them later needs no network. A result that
# exists already is kept. Exit status 77: the packages are not available.
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
    # debootstrap creates device files, and so does tar when it unpacks the archive. Therefore this
    # user must have the right to create device files.
    mknod device c 1 3 2>/dev/null || { echo "this user may not make devices"; exit 77; }
    rm device
    echo "debootstrap $suite"
    # debootstrap runs twice: the first run needs the network to download packages, and the second
    # run installs them without the network.
    debootstrap --variant=minbase --download-only "$suite" root "$mirror" >log 2>&1 || { tail -n 1 log; exit 77; }
    debootstrap --variant=minbase "$suite" root "$mirror" >log 2>&1 || { tail -n 20 log; exit 1; }
    in_root apt-get -q clean
    in_root apt-get -q update >log 2>&1 || { tail -n 1 log; exit 77; }
    in_root apt-get -q -y --no-install-recommends --download-only install $dapl >log 2>&1 || { tail -n 1 log; exit 77; }
    tar -C root --numeric-owner -cf debian.tar .
    rm -rf root log
    echo "$hash" >of
}

# Prints the mirror from which this host gets its own packages.
mirror() {
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$suite" '$1 == suite && $2 == "main" { print $3; exit }'
}

in_root() {
    env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot root "$@"
}

main
