//! The same calls with features of ext4 beside each other, and with each alone. Where the kernel of
//! this machine mounts no such image, its side is one without what it may lack, and its answers are
//! the same.
//! `IOPATH_SEEDS=38` comes to all of them, `IOPATH_SEED=n` to one; with
//! `IOPATH_MOUNT_SCALE=2` every call is made on every kind of name, too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use testkit::campaign::seeds;
use testkit::judge::{self, LoopMount, run_ok};

use super::{EVERYBODY, Sides, matrix, random};
use crate::host::{Mounted, iopath, place, scale};

/// What mke2fs is asked for. Cheap ones that have most of the features come first.
const IMAGES: &[&str] = &[
    "-b 4096 -O encrypt,casefold,mmp,quota,ea_inode",
    "-b 1024 -O bigalloc,inline_data,orphan_file -C 16384",
    "-b 65536 -O fast_commit",
    "-b 4096 -O fast_commit,inline_data,casefold",
    "-b 1024 -O quota,project,ea_inode,inline_data",
    "-b 1024 -O meta_bg,^resize_inode,fast_commit,orphan_file",
    "-b 2048 -O bigalloc,quota,ea_inode,orphan_file -C 8192",
    "-b 1024 -O casefold,^metadata_csum,^64bit,inline_data",
    "-b 8192 -O bigalloc,inline_data,project,quota -C 16384",
    "-b 4096 -O large_dir,ea_inode,casefold,verity,stable_inodes",
    "-b 32768 -O casefold,orphan_file,fast_commit",
    "-b 1024 -O sparse_super2,metadata_csum_seed,inline_data,ea_inode",
    "-b 1024 -O bigalloc,inline_data,casefold -C 16384",
    "-b 4096 -O encrypt,inline_data,stable_inodes",
    "-b 1024 -O encrypt,bigalloc,quota -C 4096",
    "-b 4096 -O mmp,fast_commit,encrypt",
    // Each alone.
    "-b 1024 -O inline_data",
    "-b 4096 -O bigalloc",
    "-b 1024 -O bigalloc -C 2048",
    "-b 4096 -O bigalloc -C 262144",
    "-b 4096 -O casefold",
    "-b 4096 -O encrypt",
    "-b 4096 -O verity",
    "-b 1024 -O meta_bg,^resize_inode",
    "-b 4096 -O mmp",
    "-b 1024 -O ^metadata_csum,uninit_bg",
    "-b 1024 -O large_dir",
    "-b 4096 -O quota",
    "-b 4096 -O quota,project",
    "-b 4096 -O stable_inodes",
    "-b 4096 -O ea_inode",
    "-b 4096 -O fast_commit",
    "-b 4096 -O orphan_file",
    "-b 4096 -O sparse_super2",
    "-b 4096 -O metadata_csum_seed",
    "-b 8192",
    "-b 65536",
    "-b 4096 -O ^has_journal,^extent,^64bit",
];

/// The directory in which the calls happen.
const BELOW: &str = "below";

/// Our command does something with a directory of an image.
fn ours(image: &Path, verb: &[&str], more: &[&str]) {
    let mut place = image.as_os_str().to_owned();
    place.push(format!(":/{BELOW}"));
    let output = iopath(&[]).args(verb).arg(place).args(more).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{verb:?}: {said}");
}

/// Makes the image at `image`, with its directory.
fn make(image: &Path, words: &str, key: &str) {
    let args: Vec<&str> = ["-t", "ext4"].into_iter().chain(words.split(' ')).collect();
    judge::mke2fs(image, 320 << 20, &args);
    ours(image, &["mkdir"], &[]);
    if words.contains("casefold") {
        ours(image, &["chattr", "+F"], &[]);
    }
    if words.contains("encrypt") {
        ours(image, &["encrypt", "set"], &["--key", key]);
    }
}

/// The words without what kernels lack, and with blocks that all of them have.
fn usual(words: &str) -> String {
    let lacked = ["casefold", "quota", "project", "verity"];
    let words: Vec<&str> = words.split(' ').collect();
    let large = words[1].len() > 4 || words[1] == "8192";
    let pairs = words.chunks(2).map(|pair| match pair[0] {
        "-b" if large => "-b 4096".to_owned(),
        "-O" => {
            let kept = |name: &&str| !lacked.contains(name) && (!large || *name != "bigalloc");
            let names: Vec<&str> = pair[1].split(',').filter(kept).collect();
            // One that is there anyway.
            format!("-O {}", if names.is_empty() { "extent".into() } else { names.join(",") })
        }
        "-C" if large => "-O extent".to_owned(),
        _ => pair.join(" "),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// The kernel's mount of a copy of `image`, or of one without what it may lack.
fn of_the_kernel(image: &Path, words: &str, key: &str) -> LoopMount {
    let copy = image.with_file_name("kernel.img");
    fs::copy(image, &copy).expect("a copy");
    let mounted = LoopMount::new(&copy, "ext4", "rw,noatime").or_else(|_| {
        make(&copy, &usual(words), key);
        LoopMount::new(&copy, "ext4", "rw,noatime")
    });
    let mount = mounted.expect("the kernel mounts it");
    if words.contains("encrypt") {
        let command = format!("xfs_io -c add_enckey {} < {key}", mount.path().display());
        run_ok("sh", &[&"-c", &command]);
    }
    mount
}

#[test]
fn calls_on_mixtures_answer_as_the_kernels() {
    for words in seeds(2).filter_map(|index| IMAGES.get(index as usize)) {
        println!("{words}");
        let place = place();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        let (image, key) = (place.path().join("ext4.img"), place.path().join("key"));
        fs::write(&key, (0..64).collect::<Vec<u8>>()).expect("a key");
        let key = key.to_str().expect("text");
        make(&image, words, key);
        let kernel = of_the_kernel(&image, words, key);
        let dir = image.with_extension("mnt");
        let command = iopath(&[&"mount", &"-f", &"--key", &key, &"-o", &EVERYBODY, &image, &dir]);
        let ours = Mounted::by(command, &image);
        let sides = Sides { ours, kernel, below: BELOW, root_alone: false };
        sides.run(|pair| {
            random::run(pair);
            // The matrix takes long.
            if scale() > 1 {
                matrix::run(pair);
            }
        });
        judge::e2fsck(&image).unwrap_or_else(|message| panic!("{words}: {message}"));
    }
}
