# Makes a guest's files: make.sh NEWEST GUEST KERNELS, with the folder of the newest tools (a
# Debian to chroot into), an empty folder, which gets the kernel (`vmlinuz`) and the first file
# system (`root`), and the folder of the Debian whose kernel it is. Called by `cargo xtask guest`.
set -eu
newest=$1 guest=$2 root=$2/root kernels=$3
tools="xfsprogs e2fsprogs fsverity"
in_newest() { chroot "$newest" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
in_kernels() { chroot "$kernels" env LC_ALL=C "$@"; }

# A mirror that stands still is used, too.
in_newest apt-get -qq -o Acquire::Check-Valid-Until=false update
in_newest apt-get -qq -y install --no-install-recommends $tools busybox-static kmod >/dev/null

# The kernel: its package names those with the binary and the modules.
[ "$kernels" = "$newest" ] || in_kernels apt-get -qq update
depends() { in_kernels apt-cache depends "$1" | sed -n 's/.*Depends: \(linux-[^ ]*\)$/\1/p'; }
image=$(depends linux-image-cloud-amd64 | grep -m1 '^linux-image-')
mkdir -p "$guest/packages"
for package in $image $(depends "$image" | grep -E '^linux-(binary|modules|image)-'); do
    place=$(in_kernels mktemp -d)
    in_kernels sh -c "cd $place && apt-get -qq download $package"
    dpkg -x "$kernels$place"/linux-*.deb "$guest/packages"
    rm -r "${kernels:?}$place"
done
cp "$(find "$guest/packages" -name 'vmlinuz*' -type f | head -1)" "$guest/vmlinuz"

modules=$(find "$guest/packages" -type d -path '*/lib/modules/*' -prune | head -1)
version=${modules##*/}
mkdir -p "$root"/bin "$root"/dev "$root"/etc "$root"/proc "$root"/sys "$root"/run "$root"/tmp \
    "$root"/mnt "$root/lib/modules/$version"
(cd "$modules" && find kernel/fs kernel/drivers/block kernel/drivers/md kernel/drivers/virtio \
    kernel/crypto kernel/lib kernel/arch/x86 -name '*.ko*' -print0 |
    cpio -0pdm --quiet "$root/lib/modules/$version")
find "$root/lib/modules" -name '*.xz' -exec xz -d {} +

for program in $(in_newest dpkg -L $tools kmod | grep -E '^/(usr/)?s?bin/[^/]+$' | sort -u); do
    [ -f "$newest$program" ] || continue
    cp -L "$newest$program" "$root/bin/"
    in_newest ldd "$program" 2>/dev/null | grep -oE '/[^ ]+' || true
done | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$newest$library" "$root$library"
done
cp "$newest/usr/bin/busybox" "$root/bin/busybox"
cp "$newest/etc/mke2fs.conf" "$root/etc/"
for id in 0 1000 1001 1002; do
    echo "u$id:x:$id:$id::/:/bin/sh" >>"$root/etc/passwd"
    echo "g$id:x:$id:" >>"$root/etc/group"
done
# It complains that the lists of what is built in are missing; no module here depends on such.
chroot "$root" /bin/depmod "$version" 2>/dev/null
rm -r "$guest/packages"
