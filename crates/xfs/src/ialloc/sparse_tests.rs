//! Inode chunks with holes: the kernel makes them where free space is in small pieces, we allocate
//! and free in them and make more; xfs_repair and the kernel have the last word.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use base::Errno;
use rt::Cx;
use testkit::judge::{self, LoopMount};
use vfs::{FileSystem, FileType, NewNode};

use super::tests::chunks;
use crate::Xfs;
use crate::format::Kind;
use crate::log_common::{mkfs, mount, real, repair, scratch};

/// Fills the disk with files of seven blocks and takes every second one away: a cluster of inodes
/// fits into each gap, a whole chunk into none. Then names use up the free inodes, and
/// what larger gaps there are.
fn fragment(image: &Path) {
    let mount = LoopMount::new(image, "xfs", "rw").expect("mounted");
    let dir = mount.path().join("fill");
    fs::create_dir(&dir).expect("a directory");
    let mut count = 0;
    loop {
        let mut file = match File::create(dir.join(format!("f{count}"))) {
            Ok(file) => file,
            Err(_) => break,
        };
        if file.write_all(&[3; 28 << 10]).and_then(|()| file.sync_all()).is_err() {
            break;
        }
        count += 1;
    }
    for number in (0..count).step_by(2) {
        fs::remove_file(dir.join(format!("f{number}"))).expect("removed");
    }
    judge::run_ok("sync", &[&"-f", &mount.path()]);
    let dir = mount.path().join("names");
    fs::create_dir(&dir).expect("a directory");
    for number in 0..8000 {
        File::create(dir.join(format!("k{number}"))).expect("created");
    }
}

/// Chunks with holes, and inodes in all chunks.
fn count(cx: &mut Cx, fs: &Arc<Xfs>) -> (usize, u64) {
    let inodes = fs.writer().expect("a writer").inodes.clone();
    let (mut sparse, mut all) = (0, 0);
    for ag in 0..fs.geometry().ag_count() {
        for chunk in chunks(cx, &inodes, ag, Kind::Inobt) {
            assert!(chunk.consistent(), "{chunk:?}");
            sparse += usize::from(chunk.holes != 0);
            all += u64::from(chunk.count);
        }
    }
    (sparse, all)
}

#[test]
fn chunks_with_holes_are_used_made_and_given_back() {
    let dir = scratch();
    let features = "rmapbt=0,reflink=0";
    let args = ["--unsupported", "-l", "size=13m", "-d", "agcount=2", "-m", features];
    let image = mkfs(dir.path(), "sparse", 64 << 20, &args);
    fragment(&image);
    let names = real(|cx| {
        let fs = mount(cx, &image);
        let (sparse, inodes) = count(cx, &fs);
        assert!(sparse > 0, "the kernel made no chunk with holes");
        let folder = fs.lookup(cx, fs.root(), b"names").expect("a directory").ino;
        let node = NewNode::new(FileType::Regular, 0o644);
        let mut ours = BTreeSet::new();
        for number in 0..400 {
            let name = format!("ours{number}");
            match fs.create(cx, folder, name.as_bytes(), &node) {
                Ok(_) => ours.insert(name),
                Err(Errno::ENOSPC) => break,
                Err(error) => panic!("{name}: {error}: {:?}", fs.error()),
            };
        }
        let (more, after) = count(cx, &fs);
        assert!(more > sparse && after > inodes, "{sparse} became {more}, {inodes} {after}");
        // Everything that the kernel has put behind the first chunks goes, and some of ours.
        let mut kernels = Vec::new();
        fs.readdir(cx, folder, 0, &mut |entry| {
            kernels.extend((entry.name[0] == b'k').then(|| entry.name.to_vec()));
            true
        })
        .expect("listed");
        for name in &kernels {
            fs.unlink(cx, folder, name).expect("removed");
        }
        ours.retain(|name| {
            let keep = name.len() % 2 == 0 || name.ends_with('7');
            if !keep {
                fs.unlink(cx, folder, name.as_bytes()).expect("removed");
            }
            keep
        });
        fs.sync(cx).expect("synced");
        assert!(count(cx, &fs).1 < after, "no chunk was given back");
        fs.unmount(cx).expect("unmounted");
        ours
    });
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n: {text}"));
    let mount = LoopMount::new(&image, "xfs", "rw").expect("the kernel mounts");
    let listed = fs::read_dir(mount.path().join("names")).expect("listed");
    let found = listed.map(|entry| entry.expect("an entry").file_name().into_string());
    assert_eq!(found.collect::<Result<BTreeSet<_>, _>>().expect("UTF-8"), names);
    drop(mount);
    repair(&image).unwrap_or_else(|text| panic!("xfs_repair -n after the kernel: {text}"));
}
