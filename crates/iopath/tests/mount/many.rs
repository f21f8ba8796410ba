//! Directories of many names, and trees that go again; `IOPATH_MOUNT_SCALE=10` for 100,000 names.

use std::fs;

use testkit::judge;

use crate::host::{Mounted, check, on_each_format, place, scale, shell};

/// Names in one directory, in blocks of 1 KiB, where their trees grow soon: found again, read in
/// one go and in the middle of removals, and gone with `rm -rf`; so is what held them.
fn many_names_come_and_go(kind: &str) {
    let count = 10_000 * scale();
    let place = place();
    let image = place.path().join(format!("{kind}.img"));
    if kind == "xfs" {
        fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        judge::run_ok("mkfs.xfs", &[&"-q", &"-b", &"size=1024", &image]);
    } else {
        judge::mke2fs(&image, 512 << 20, &["-t", kind, "-b", "1024", "-N", "200000"]);
    }
    let mount = Mounted::new(&image, "");
    let dir = mount.dir().join("many");
    fs::create_dir(&dir).unwrap();
    let name = |number: u64| format!("a name of some length {number:07}");
    (0..count).for_each(|number| drop(fs::File::create_new(dir.join(name(number))).unwrap()));
    let seen = |dir: &std::path::Path| {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let all: Vec<String> = (0..count).map(name).collect();
    assert!(seen(&dir) == all, "{kind}: made");
    mount.unmount();
    check(&image);
    let mount = Mounted::new(&image, "");
    assert!(seen(&dir) == all, "{kind}: after a remount");
    for number in (0..count).step_by(97) {
        assert!(fs::symlink_metadata(dir.join(name(number))).unwrap().is_file());
        assert!(!dir.join(name(count + number)).exists());
    }
    // Every third goes while the directory is read.
    let mut kept = 0;
    for (at, entry) in fs::read_dir(&dir).unwrap().enumerate() {
        let entry = entry.unwrap();
        match at % 3 {
            0 => fs::remove_file(entry.path()).unwrap(),
            _ => kept += 1,
        }
    }
    let left = seen(&dir);
    assert_eq!(left.len(), kept, "{kind}: each was seen once");
    assert!(left.iter().all(|name| all.binary_search(name).is_ok()));
    shell(
        mount.dir(),
        "mkdir -p t/a/b/c; cp -a many t/a/b/; rm -rf many t; test -z \"$(ls | grep -v lost)\"",
    );
    mount.unmount();
    check(&image);
    let mount = Mounted::new(&image, "");
    assert_eq!(shell(mount.dir(), "ls | grep -v lost || true"), "");
    fs::write(mount.dir().join("again"), "x").unwrap();
    mount.unmount();
}

on_each_format!(many_names_come_and_go);
