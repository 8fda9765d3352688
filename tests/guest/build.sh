#!/bin/bash
# build.sh DIR: builds a virtual machine in DIR from Debian packages: DIR/qemu, DIR/vmlinuz and
# DIR/initrd. Its kernel is Debian's, with rdma_rxe. siw, which Debian does not build, is built from
# Debian's sources of that kernel. Nothing is installed on this host, and parts that exist already
# are kept. Exit status 77: the packages are not available.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
exec 9>lock
flock 9

kernel=6.12
user_space="bash busybox-static coreutils iproute2 libdapl2 dapl2-utils ibverbs-providers rdmacm-utils
    perftest"
# The kernel modules, in the order in which init inserts them.
modules="netfs 9pnet 9pnet_virtio 9p failover net_failover virtio_net
    crc32c_generic crc32_generic crc32c-intel crc32-pclmul libcrc32c
    ib_core ib_uverbs iw_cm ib_cm configfs rdma_cm rdma_ucm udp_tunnel ip6_udp_tunnel rdma_rxe siw dummy veth
    ifb sch_ingress sch_netem cls_u32 act_mirred"

# apt reads this empty list of installed packages, so that it finds all dependencies of a package
# and not only those that this host lacks.
: >no-packages
apt=(apt-get -q -o Dir::State::status="$PWD/no-packages" -o APT::Install-Recommends=false -o APT::Sandbox::User=root
    -o DPkg::Lock::Timeout=600)

main() {
    local hash
    hash=$(sha256sum <"$here/build.sh")
    if [ "$(cat qemu/of 2>/dev/null)" != "$hash" ]; then
        qemu
        echo "$hash" >qemu/of
    fi
    if [ "$(cat of 2>/dev/null)" != "$hash" ]; then
        system
        echo "$hash" >of
    fi
    # The archive of the guest's scripts is small, so it is made on each run.
    (cd "$here" && printf '%s\n' init serve device apart lossy pair | "$OLDPWD/busybox" cpio -o -H newc 2>/dev/null) >init.cpio
    cat system.cpio init.cpio >initrd
}

# QEMU is unpacked and not installed: Debian's QEMU conflicts with the tools of a newer one.
qemu() {
    echo "unpacking QEMU"
    # QEMU uses the host's libc and compiler libraries. Data for sound, country names and network
    # boot are not needed.
    local left_out='^(libc6|libgcc-s1|gcc-12-base|libstdc\+\+6|adduser|passwd|debconf|libpam.*|libasound2-data|iso-codes|ipxe-qemu)$'
    rm -rf qemu
    unpack qemu $(needed qemu-system-x86 | grep -vE "$left_out")
}

system() {
    work=$(mktemp -d "$PWD/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    local image release
    image=$(apt-cache depends linux-image-$kernel-amd64 | awk '$1 == "Depends:" { print $2; exit }' || true)
    [ -n "$image" ] || { echo "apt knows no linux-image-$kernel-amd64"; exit 77; }
    release=${image#linux-image-}
    echo "Linux $release"
    unpack "$work/kernel" "$image"
    cp "$work/kernel/boot/vmlinuz-$release" vmlinuz
    siw "$release"

    echo "user space"
    local root=$work/root n=100
    # These packages are needed only to install packages, so the guest does not get them.
    local left_out='^(adduser|passwd|login|debconf|debianutils|base-files|dpkg|tar|perl.*|libperl.*|libpam.*|libaudit.*|libsemanage.*|gcc-12-base)$'
    unpack "$root" $(needed $user_space | grep -vE "$left_out")
    rm -rf "$root"/usr/share/{doc,man,locale,info,i18n} "$root"/usr/lib/x86_64-linux-gnu/gconv
    mkdir -p "$root"/{dev,etc,proc,sys,tmp,modules,lib,usr/bin}
    for module in $modules; do
        n=$((n + 1))
        xz -dc "$(find "$work/kernel" -name "$module.ko.xz")" >"$root/modules/$n-$module.ko"
        # strip also removes the module's signature, so the kernel inserts the module faster.
        strip --strip-debug -R .BTF "$root/modules/$n-$module.ko"
    done
    printf 'root:x:0:0:root:/root:/bin/bash\n' >"$root/etc/passwd"
    cp "$root/bin/busybox" busybox
    (cd "$root" && find . | "$OLDPWD/busybox" cpio -o -H newc 2>/dev/null) >system.cpio
}

# Builds siw for a kernel next to the kernel's other modules. A constant of the source that decides
# about CRCs becomes a module parameter with the same default value.
siw() {
    local release=$1 source=$work/linux-source-$kernel/drivers/infiniband/sw/siw
    local headers=$work/headers/usr/src/linux-headers-$release
    echo "building siw"
    unpack "$work/headers" "linux-headers-$release" "linux-headers-${release%-amd64}-common" "linux-kbuild-${release%-amd64}"
    sed -i "s,include /usr/src,include $work/headers/usr/src," "$headers/Makefile"
    unpack "$work/source" linux-source-$kernel
    xz -dc -T0 "$work/source/usr/src/linux-source-$kernel.tar.xz" |
        tar -x -C "$work" "linux-source-$kernel/drivers/infiniband/sw/siw"
    sed -i 's/^extern const bool mpa_crc_required;/extern bool mpa_crc_required;/' "$source/siw.h"
    sed -i -E 's/^const bool (mpa_crc_required.*;)/bool \1 module_param(mpa_crc_required, bool, 0644);/' "$source/siw_main.c"
    make -s -C "$headers" M="$source" CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$work/log" 2>&1 ||
        { cat "$work/log"; exit 1; }
    xz -0 "$source/siw.ko"
    cp "$source/siw.ko.xz" "$work/kernel/"
}

# Prints the given packages and all packages that they depend on.
needed() {
    "${apt[@]}" -s install "$@" 2>/dev/null | awk '$1 == "Inst" { print $2 }'
}

# unpack INTO PACKAGE...: downloads packages and unpacks them.
unpack() {
    local into=$1 package
    shift
    mkdir -p "$into" "$into.deb"
    (cd "$into.deb" && "${apt[@]}" download "$@" >log 2>&1) || { tail -n 1 "$into.deb/log"; exit 77; }
    for package in "$into.deb"/*.deb; do
        dpkg-deb -x "$package" "$into"
    done
    rm -rf "$into.deb"
}

# An outdated package list names files that no longer exist. Without a network the old list is used.
lists_are_current() {
    [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' -mtime -1 2>/dev/null | head -n 1)" ]
}

[ -e of ] && [ -e qemu/of ] || lists_are_current || apt-get -q update >/dev/null || true
main
