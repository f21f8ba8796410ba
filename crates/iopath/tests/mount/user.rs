//! A mount without root, by the setuid program `fusermount3`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::judge;

use crate::host::{check, image, place, shell};

/// The user `nobody` mounts an image of his: in the background and in the foreground, and takes it
/// away with fusermount3 and with a signal. The device is open to everybody as on most machines; on
/// this one it may not be, so that one of the test's own lies over it in a name space of mounts of
/// its own. While it is closed to him he is told so.
#[test]
fn a_user_mounts_with_fusermount3() {
    let place = place();
    let place = place.path();
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    let image = image(place, "ext4", 64 << 20);
    let iopath = place.join("iopath");
    // A process of its own: what this one has open for writing, another thread's new process has
    // open for a moment, too (ETXTBSY).
    judge::run_ok("cp", &[&env!("CARGO_BIN_EXE_iopath"), &iopath]);
    fs::create_dir(place.join("mnt")).unwrap();
    fs::write(
        place.join("user.sh"),
        "set -e; test $(id -un) = nobody
         wait_free() { until ./iopath info ext4.img >info 2>&1; do sleep 0.01; done; }
         ./iopath mount -o fakeroot ext4.img mnt
         grep \"$PWD/mnt fuse.iopath\" /proc/mounts | grep -q user_id=$(id -u)
         echo one >mnt/one; seq 200000 >big; cp big mnt; cmp big mnt/big
         fusermount3 -u mnt; wait_free
         test \"$(./iopath cat ext4.img:/one)\" = one
         ./iopath mount -f ext4.img mnt & until mountpoint -q mnt; do kill -0 $!; sleep 0.01; done
         test \"$(cat mnt/one)\" = one; if echo two 2>/dev/null >mnt/two; then exit 1; fi
         kill -TERM $!; wait $!; if mountpoint -q mnt; then exit 1; fi\n",
    )
    .unwrap();
    shell(place, "chown -R nobody:nogroup .");
    shell(
        place,
        "unshare -m sh -ec 'mkdir dev; mount -t tmpfs none dev; mknod -m 666 dev/fuse c 10 229
           mount --bind dev/fuse /dev/fuse
           nobody() { setpriv --reuid nobody --regid nogroup --clear-groups \"$@\"; }
           chmod 600 dev/fuse; if nobody ./iopath mount ext4.img mnt 2>told; then exit 1; fi
           grep -q \"/dev/fuse: Permission denied.*chmod 666 /dev/fuse\" told; chmod 666 dev/fuse
           nobody timeout 300 sh user.sh'",
    );
    judge::run_ok("chown", &[&"root:root", &image]);
    check(&image);
}
