# Runs in a fresh Debian, as root: installs the package, uses it, and purges it.
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
list() { find /etc /lib /usr /var -xdev ! -path '/var/lib/dpkg/*' ! -path '/var/cache/*' ! -path '/var/log/*' \
    ! -path '*/ldconfig/*' ! -path '/var/lib/apt/*' 2>/dev/null | sort; }
dpkg --purge iopath >/dev/null 2>&1 || true
list >/before
dpkg --install --force-depends /iopath.deb
test "$(command -v iopath)" = /usr/bin/iopath
cd "$(mktemp -d)"
iopath mkfs -t ext4 --size 32M a.img
mkdir mnt
mount -t iopath "$PWD/a.img" "$PWD/mnt"
grep "^$PWD/a.img $PWD/mnt fuse.iopath " /proc/mounts
echo content >mnt/file
mount -o remount,ro "$PWD/mnt"
if echo more 2>/dev/null >mnt/file; then exit 1; fi
umount mnt
until iopath check a.img; do sleep 0.1; done
echo "$PWD/a.img $PWD/mnt iopath ro,noauto,nofail,x-systemd.automount 0 0" >>/etc/fstab
mount "$PWD/mnt"
test "$(cat mnt/file)" = content
umount "$PWD/mnt"
sed -i '/iopath/d' /etc/fstab
test -e /usr/share/man/man1/iopath.1.gz
test -e /usr/share/bash-completion/completions/iopath
cd /
dpkg --purge iopath
list >/after
diff /before /after
echo "installed, used and purged"
