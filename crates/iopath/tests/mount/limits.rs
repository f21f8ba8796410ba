//! Limits that hold for programs on a mount.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::judge;

use crate::host::{Mounted, check, iopath, place, shell};

/// Quota: what a user writes through the kernel's cache is held to his limit of space, to the
/// block, and his files to the limit of inodes; root is not held; e2fsck counts the same.
#[test]
fn a_user_is_held_to_his_quota() {
    let place = place();
    let path = place.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let image = path.join("ext4.img");
    judge::mke2fs(&image, 64 << 20, &["-t", "ext4", "-O", "quota"]);
    let quota = |rest: &str| {
        let words: Vec<&str> = rest.split(' ').collect();
        let mut command = iopath(&[&"quota"]);
        let output = command.args(words).arg(&image).output().expect("the command starts");
        assert!(output.status.success(), "quota {rest}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    quota("set --kind user --id 1234 --block-hard 400 --inode-hard 3");
    // As far as the limit, and no farther: `dd` tells by its status.
    for options in ["", ",nowriteback"] {
        let mount = Mounted::new(&image, options);
        fs::write(
            mount.dir().join("user.sh"),
            "dd() { command dd if=/dev/zero status=none conv=fsync \"$@\" 2>/dev/null; }
             set -e; dd of=open/f bs=64k count=4
             if dd of=open/g bs=64k count=16; then exit 1; fi
             test $(du -sk open/g | cut -f1) -le 144; rm open/g; dd of=open/g bs=16k count=9
             touch open/h; if (echo >open/i) 2>/dev/null; then exit 3; fi
             rm open/f open/g open/h\n",
        )
        .unwrap();
        shell(
            mount.dir(),
            "mkdir -p open; chmod 1777 open; head -c 3000000 /dev/zero >open/root; sync open/root",
        );
        let user = "setpriv --reuid 1234 --regid 77 --clear-groups sh user.sh";
        shell(mount.dir(), user);
        mount.unmount();
        check(&image);
    }
}
