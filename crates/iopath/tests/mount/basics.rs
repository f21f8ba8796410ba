//! Beginning and end of a mount: messages, locks, the background, signals.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use testkit::judge::{self, LoopMount};
use testkit::manifest;

use crate::host::{
    Mounted, check, image, iopath, is_mounted, on_each_format, place, shell, wait_until,
};

/// A tree that is copied in, seen by the kernel's own mount afterwards, with everything that
/// `cp -a` keeps.
fn what_is_written_through_the_mount_is_what_the_kernel_sees(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 256 << 20);
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    shell(
        &tree,
        "mkdir -p a/b 'sp ace'; echo one >a/one; ln a/one a/b/two; ln -s ../one a/b/three
         mkfifo a/fifo; mknod a/dev c 300 70000; head -c 3000000 /dev/urandom >a/big
         truncate -s 40M a/sparse
         printf x | dd of=a/sparse bs=1 seek=20000000 conv=notrunc status=none
         name=$(printf 'n%.0s' $(seq 255)); echo long >$name; setfattr -n user.k -v v a/one
         setfacl -m u:12:rw a/one; setfacl -d -m g:13:rx a; chmod 4711 a/big; chown 3:4 a/b
         touch -d '1955-03-04 05:06:07.25' a/one; touch -d '2200-01-01 00:00:00.123456789' a/big",
    );
    let mount = Mounted::new(&image, "");
    shell(mount.dir(), "rm -rf lost+found");
    shell(&tree, &format!("cp -a . {0}/; sync {0}/a/one", mount.dir().display()));
    let expected = manifest::of_dir(&tree).unwrap();
    let mut seen = manifest::of_dir(mount.dir()).unwrap();
    without_xfs_acls(&mut seen);
    assert_eq!(manifest::diff(&expected, &seen), "", "through our mount");
    mount.unmount();
    check(&image);
    let mut kernel = judge::kernel_manifest(&image, kind);
    without_xfs_acls(&mut kernel);
    assert_eq!(manifest::diff(&expected, &kernel), "", "through the kernel's mount");
}

/// XFS shows root its ACLs a second time, in their form on disk.
fn without_xfs_acls(manifest: &mut manifest::Manifest) {
    for entry in manifest.values_mut() {
        entry.xattrs.retain(|name, _| !name.starts_with("trusted.SGI_ACL_"));
    }
}

/// statx(2) tells when a file was made, as the kernel's own mount does.
fn birth_times_are_those_of_the_image(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 64 << 20);
    let mount = Mounted::new(&image, "");
    let look = "stat -c '%n %W %w' . a b";
    shell(mount.dir(), "mkdir a; touch b; touch -d 1999-01-01 a b");
    let ours = shell(mount.dir(), look);
    mount.unmount();
    let kernel = LoopMount::new(&image, kind, "ro").unwrap();
    assert_eq!(ours, shell(&kernel.path(), look));
    assert!(!ours.contains(" 0 "), "{ours}");
}

/// The command returns when the mount serves; the process in the background ends by itself after
/// umount, with everything on the image; nobody else opens the image meanwhile.
#[test]
fn the_background_serves_and_ends_with_umount() {
    let place = place();
    let image = image(place.path(), "ext4", 64 << 20);
    let dir = place.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let output = iopath(&[&"mount", &image, &dir]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::write(dir.join("file"), "content").unwrap();
    let second = iopath(&[&"mount", &image, &dir]).output().unwrap();
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{error}");
    assert!(error.contains("in use by"), "{error}");
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"content");
    judge::run_ok("umount", &[&dir]);
    wait_until("the lock of the image", || {
        iopath(&[&"cat", &format!("{}:/file", image.display())]).output().unwrap().stdout
            == b"content"
    });
    check(&image);
}

/// SIGTERM unmounts, also while a program has its working directory and dirty files there.
fn signals_unmount_and_lose_nothing(kind: &str) {
    for (signal, busy) in [("INT", false), ("TERM", true)] {
        let place = place();
        let image = image(place.path(), kind, 64 << 20);
        let mut mount = Mounted::new(&image, "");
        let held = busy.then(|| fs::File::create(mount.dir().join("held")).unwrap());
        shell(mount.dir(), "seq 100000 >file");
        if let Some(mut held) = held.as_ref() {
            std::io::Write::write_all(&mut held, b"not closed, not synced").unwrap();
        }
        judge::run_ok("kill", &[&"-s", &signal, &mount.pid().to_string()]);
        let status = mount.wait();
        assert!(status.success(), "{signal}: {status}: {}", mount.said());
        assert!(!is_mounted(mount.dir()));
        drop(held);
        drop(mount);
        check(&image);
        let list = iopath(&[&"cat", &format!("{}:/file", image.display())]).output().unwrap();
        assert!(list.stdout.ends_with(b"99999\n100000\n"), "{signal}");
        if busy {
            let held = iopath(&[&"cat", &format!("{}:/held", image.display())]).output().unwrap();
            assert_eq!(held.stdout, b"not closed, not synced");
        }
    }
}

/// A mount in use: umount says busy; after `umount -l` the image stays locked until the last user
/// leaves, and what he wrote meanwhile is there.
fn a_mount_in_use_stays_until_its_last_user_leaves(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 64 << 20);
    let mut mount = Mounted::new(&image, "");
    let mut held = fs::File::create(mount.dir().join("held")).unwrap();
    let busy = judge::run("umount", &[&mount.dir()]);
    assert!(!busy.status.success() && String::from_utf8_lossy(&busy.stderr).contains("busy"));
    judge::run_ok("umount", &[&"-l", &mount.dir()]);
    assert!(!is_mounted(mount.dir()));
    std::io::Write::write_all(&mut held, b"by its last user").unwrap();
    let locked = iopath(&[&"info", &image]).output().unwrap();
    let error = String::from_utf8_lossy(&locked.stderr).into_owned();
    assert!(!locked.status.success() && error.contains("in use by"), "{error}");
    drop(held);
    assert!(mount.wait().success(), "{}", mount.said());
    check(&image);
    let list = iopath(&[&"cat", &format!("{}:/held", image.display())]).output().unwrap();
    assert_eq!(list.stdout, b"by its last user");
}

/// Two images at once: trees move between them and stay what they were; a lock of one process holds
/// for others.
#[test]
fn two_mounts_at_once_and_locks_between_processes() {
    let place = place();
    let images = ["ext4", "xfs"].map(|kind| image(place.path(), kind, 64 << 20));
    let mounts = images.each_ref().map(|image| Mounted::new(image, ""));
    let [one, other] = mounts.each_ref().map(|mount| mount.dir().display());
    shell(
        place.path(),
        &format!(
            "mkdir -p {one}/t/d; seq 100000 >{one}/t/d/f; ln {one}/t/d/f {one}/t/g; cp -a {one}/t .
             setfattr -n user.a -v b {one}/t/g t/g; mv {one}/t {other}/u; test ! -e {one}/t
             diff -r t {other}/u; mv {other}/u {one}/v; test ! -e {other}/u; diff -r t {one}/v
             test $(stat -c %h {one}/v/g) = 2; getfattr -n user.a {one}/v/d/f
             for dir in {one} {other}; do
               exec 9>$dir/lock; flock -n 9; if flock -n $dir/lock true; then exit 1; fi
               exec 9>&-; flock -n $dir/lock true
             done"
        ),
    );
    mounts.into_iter().for_each(Mounted::unmount);
    images.iter().for_each(|image| check(image));
}

/// What cannot be mounted is told before anything is touched.
#[test]
fn refusals_name_what_and_where() {
    let place = place();
    let image = image(place.path(), "ext4", 64 << 20);
    let dir = place.path().join("mnt");
    let refused = |options: &str, dir: &std::path::Path| {
        let output = iopath(&[&"mount", &"-f", &"-o", &options, &image, &dir]).output().unwrap();
        assert!(!output.status.success(), "{options}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused("rw", &dir).contains("No such file or directory"));
    fs::write(&dir, "").unwrap();
    assert!(refused("rw", &dir).contains("Not a directory"));
    assert!(refused("quick", &dir).contains("`quick` is not known"));
    let elsewhere = iopath(&[&"ls", &"-o", &"allow_other", &image]).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));
    check(&image);
}

/// Read-only mounts change nothing; a dirty image says what was replayed.
fn read_only_is_read_only_and_dirty_is_told(kind: &str) {
    let place = place();
    let image = image(place.path(), kind, 64 << 20);
    let mount = Mounted::new(&image, "");
    shell(mount.dir(), "mkdir d; echo 1 >d/f; sync d/f d");
    mount.kill();
    let before = fs::read(&image).unwrap();
    let mount = Mounted::new(&image, ",ro");
    assert_eq!(fs::read(mount.dir().join("d/f")).unwrap(), b"1\n");
    assert_eq!(fs::write(mount.dir().join("x"), "").unwrap_err().raw_os_error(), Some(30));
    mount.unmount();
    assert!(before == fs::read(&image).unwrap(), "a read-only mount wrote");
    let mount = Mounted::new(&image, "");
    assert!(mount.said().contains("was not unmounted cleanly"), "{}", mount.said());
    assert_eq!(fs::read(mount.dir().join("d/f")).unwrap(), b"1\n");
    mount.unmount();
    check(&image);
}

/// Others than the owner are let in with `allow_other` and held to permissions and ACLs; with
/// `fakeroot` whoever mounts may do everything.
fn permissions_are_those_of_the_image(kind: &str) {
    let place = place();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = image(place.path(), kind, 64 << 20);
    let mount = Mounted::new(&image, "");
    shell(
        mount.dir(),
        "echo s >secret; chmod 600 secret; echo a >acl; chmod 600 acl; setfacl -m u:1234:r acl
         mkdir open; chmod 1777 open; mkdir shared; chown 0:77 shared; chmod 2775 shared",
    );
    let user = |script: &str| {
        shell(mount.dir(), &format!("setpriv --reuid 1234 --regid 77 --clear-groups {script}"))
    };
    assert_eq!(user("cat acl"), "a\n");
    user("sh -c '! cat secret 2>/dev/null'; umask 027; true");
    user("sh -c 'umask 027; echo mine >shared/m; ! rm -f secret 2>/dev/null; echo o >open/o'");
    let mine = fs::metadata(mount.dir().join("shared/m")).unwrap();
    assert_eq!((mine.uid(), mine.gid(), mine.mode() & 0o7777), (1234, 77, 0o640));
    mount.unmount();
    check(&image);
}

on_each_format!(
    what_is_written_through_the_mount_is_what_the_kernel_sees,
    birth_times_are_those_of_the_image,
    signals_unmount_and_lose_nothing,
    a_mount_in_use_stays_until_its_last_user_leaves,
    read_only_is_read_only_and_dirty_is_told,
    permissions_are_those_of_the_image,
);
