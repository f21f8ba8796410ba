//! Partitions of an image, in tables that nbdkit makes and partx reads.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::judge::{self, LoopMount};

use crate::host::{Mounted, check, image, iopath, place, shell};

/// Joins images to a disk with a table of this kind; its partitions' first and last sectors, as
/// partx tells.
fn disk(dir: &Path, kind: &str, parts: &[&Path]) -> (PathBuf, Vec<(u64, u64)>) {
    let disk = dir.join("disk.img");
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args(["-U", "-", "partitioning", &format!("partition-type={kind}")]).args(parts);
    let copy = format!("nbdcopy \"$uri\" '{}'", disk.display());
    let output = nbdkit.arg("--run").arg(copy).output();
    let output = output.expect("nbdkit starts; install it with: apt-get install -y nbdkit");
    assert!(output.status.success(), "{output:?}");
    let places = judge::run_ok("partx", &[&"-g", &"-o", &"START,END", &"-s", &disk]);
    let number = |text: Option<&str>| text.expect("a column").parse().expect("a number");
    let places = places.lines().map(|line| {
        let mut columns = line.split_whitespace();
        (number(columns.next()), number(columns.next()))
    });
    (disk, places.collect())
}

/// The partition `number` of `disk`, as the command names it.
fn part(disk: &Path, number: u32) -> OsString {
    let mut name = disk.as_os_str().to_owned();
    name.push(format!("@{number}"));
    name
}

/// Two partitions of one image, mounted at the same time by two processes; each is what it is to
/// its format's judge and to the kernel, and nothing beside them changes. A partition is mounted
/// once only, and one that is not there is refused by name.
#[track_caller]
fn two_partitions_are_mounted_at_once(table: &str) {
    let place = place();
    let small = place.path().join("small.img");
    judge::mke2fs(&small, 24 << 20, &["-t", "ext4"]);
    let xfs = image(place.path(), "xfs", 304 << 20);
    let other = place.path().join("other.img");
    judge::mke2fs(&other, 16 << 20, &["-t", "ext2"]);
    let (disk, places) = disk(place.path(), table, &[&small, &xfs, &other]);
    assert_eq!(places.len(), 3, "{places:?}");
    let bytes = |(first, last): (u64, u64)| {
        let mut bytes = vec![0; (last + 1 - first) as usize * 512];
        fs::File::open(&disk).unwrap().read_exact_at(&mut bytes, first * 512).unwrap();
        bytes
    };
    let before = [(0, places[0].0 - 1), places[2]].map(bytes);
    let [one, two] = [1, 2].map(|number| {
        Mounted::target(&part(&disk, number), &place.path().join(format!("p{number}")), "")
    });
    shell(one.dir(), "seq 10000 >f; mkdir d; sync f");
    shell(two.dir(), &format!("cp -a {0}/f {0}/d .; sync f", one.dir().display()));
    let dir = place.path().join("again");
    fs::create_dir(&dir).unwrap();
    for (target, said) in [
        (part(&disk, 1), format!("in use by iopath (pid {})", one.pid())),
        (part(&disk, 2), format!("in use by iopath (pid {})", two.pid())),
        (disk.clone().into(), "in use by iopath".to_owned()),
        (part(&disk, 4), "@4: no partition 4; there are: 1, 2, 3".to_owned()),
    ] {
        // A locked process cannot see which of two holds which part.
        let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"--no-sandbox", &"mount", &target, &dir];
        let output = iopath(&args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{table}: {target:?}: {error}");
        assert!(error.contains(&said), "{table}: {target:?}: {error}, not {said}");
    }
    let list = iopath(&[&"ls", &part(&disk, 3)]).output().unwrap();
    assert!(list.status.success(), "another partition can be looked at: {list:?}");
    one.unmount();
    shell(two.dir(), "seq 10000 | cmp - f; echo more >>f");
    two.unmount();
    assert!(before == [(0, places[0].0 - 1), places[2]].map(bytes), "{table}: what lies beside");
    for ((kind, image), at) in [("ext4", &small), ("xfs", &xfs)].into_iter().zip(&places) {
        let (offset, len) = (at.0 * 512, (at.1 + 1 - at.0) * 512);
        let options = format!("ro,offset={offset},sizelimit={len}");
        let kernel = LoopMount::new(&disk, kind, &options).unwrap();
        shell(
            &kernel.path(),
            "head -n 10000 f | cmp - /dev/fd/3 3<<END\n$(seq 10000)\nEND\ntest -d d",
        );
        drop(kernel);
        let (from, to) = (disk.display(), image.display());
        shell(
            place.path(),
            &format!(
                "dd if='{from}' of='{to}' skip={offset} count={len} iflag=skip_bytes,count_bytes \
                   bs=1M conv=sparse status=none"
            ),
        );
        check(image);
    }
}

#[test]
fn partitions_of_a_gpt_are_mounted_at_once() {
    two_partitions_are_mounted_at_once("gpt");
}

#[test]
fn partitions_of_an_mbr_are_mounted_at_once() {
    two_partitions_are_mounted_at_once("mbr");
}
