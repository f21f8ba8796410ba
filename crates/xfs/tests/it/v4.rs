//! Images of version 4 are read, as mkfs.xfs of today fills them; nothing writes to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::*;
use device::MemoryDevice;
use testkit::{manifest, newest, packed};
use vfs::FileSystem;
use xfs::CheckOptions;
use xfs::format::Kind;

/// MiB of an image.
const SIZE: u64 = 640;

/// An image of version 4 with a tree in it, and the tree as the kernel reads it from an image of
/// version 5 that was made in the same way.
fn filled(dir: &Path, words: &[&str], scale: fill::Scale) -> (PathBuf, manifest::Manifest) {
    let (source, image, twin) = (dir.join("source"), dir.join("image"), dir.join("twin"));
    mkfs_xfs(&source, SIZE, "");
    let mount = kernel(&source);
    fill::fill(&mount.path(), scale);
    // mkfs.xfs opens what it copies: a device that this machine lacks cannot be.
    for name in ["block", "socket"] {
        std::fs::remove_file(mount.path().join(name)).expect("unlink");
    }
    let tree = mount.path().display().to_string();
    let from = ["-p", &tree];
    newest::mkfs_xfs(&image, SIZE << 20, &[&["-m", "crc=0"], &from[..], words].concat());
    newest::mkfs_xfs(&twin, SIZE << 20, &from);
    drop(mount);
    (image, kernel_tree(&twin))
}

fn compare(words: &[&str], scale: fill::Scale) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (image, mut expected) = filled(dir.path(), words, scale);
    newest::xfs_repair(&image).unwrap_or_else(|text| panic!("{text}"));
    let device = load(&image);
    let (ours, findings) = in_world(move |cx| {
        let fs = try_mount(cx, device.clone()).expect("the image mounts");
        let ours = manifest::of_fs(cx, &*fs);
        assert_eq!(fs.error(), None);
        fs.unmount(cx).expect("unmount");
        let queue = queue(cx, device);
        let report = xfs::check(cx, &queue, &CheckOptions::default()).expect("the device works");
        let findings: String = report.findings.iter().map(|f| format!("{f}\n")).collect();
        (ours.expect("the tree can be read"), findings)
    });
    // The root is made, not copied.
    expected.insert(Vec::new(), ours[&b""[..]].clone());
    let diff = manifest::diff(&ours, &expected);
    assert!(diff.is_empty(), "{words:?}\n{diff}");
    assert!(findings.is_empty(), "{words:?}\n{findings}");
}

#[test]
fn blocks_of_4k_are_read() {
    compare(&[], fill::Scale { long_names: 6000, extents: 1500, block: 4096 });
}

#[test]
fn what_old_systems_made_is_read() {
    let words = ["-i", "attr=1,projid32bit=0", "-l", "version=1,lazy-count=0", "-n", "ftype=0"];
    compare(&words, fill::Scale { long_names: 3000, extents: 500, block: 4096 });
}

#[test]
fn blocks_of_1k_and_other_sizes_of_directories_are_read() {
    let words = ["-b", "size=1024", "-i", "size=512", "-n", "size=8192,ftype=1", "-s", "size=512"];
    compare(&words, fill::Scale { long_names: 3000, extents: 1500, block: 1024 });
}

/// An image that is kept packed beside this file, in memory.
fn kept(name: &str) -> Arc<MemoryDevice> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/v4/{name}.img.zst"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let image = dir.path().join("image");
    packed::unpack(&path, &image);
    load(&image)
}

/// Logs that Linux 6.1 left, and what it made of them itself (`tests/v4/README.md`).
#[test]
fn logs_of_the_kernel_are_recovered_into_memory_as_the_kernel_recovers_them() {
    for name in ["default", "old", "cut"] {
        let tree = |name: &str| {
            let device = kept(name);
            in_world(move |cx| {
                let fs = try_mount(cx, device.clone()).expect("the image mounts");
                let recovered = fs.recovery().is_some();
                let tree = manifest::of_fs(cx, &*fs).expect("the tree can be read");
                fs.unmount(cx).expect("unmount");
                let queue = queue(cx, device);
                let report = xfs::check(cx, &queue, &CheckOptions::default());
                let findings = report.expect("the device works").findings;
                (tree, recovered, findings.iter().map(|f| format!("{f}\n")).collect::<String>())
            })
        };
        let (ours, recovered, notes) = tree(name);
        assert!(notes.lines().all(|line| line.starts_with("log-replayed")), "{name}\n{notes}");
        let (kernels, again, findings) = tree(&format!("{name}-recovered"));
        assert_eq!((recovered, again), (true, false), "{name}");
        assert!(findings.is_empty(), "{name}\n{findings}");
        let diff = manifest::diff(&ours, &kernels);
        assert!(diff.is_empty(), "{name}\n{diff}");
        assert!(ours.len() > 300, "{name}: {} names", ours.len());
    }
}

/// Nothing but structure protects metadata of version 4: whatever bytes stand there, a mount and a
/// check end, with findings or without.
#[test]
fn damaged_images_never_panic_or_hang() {
    let device = kept("cut-recovered");
    let bytes = device.snapshot();
    let places: Vec<usize> = (0..bytes.len())
        .step_by(512)
        .filter(|&at| {
            let block = &bytes[at..at + 512];
            Kind::ALL.iter().any(|kind| kind.is_v4(block))
        })
        .collect();
    assert!(places.len() > 500, "{} blocks of metadata", places.len());
    let mut random = base::Rng::new(4, 0);
    for round in 0..150 {
        let device = Arc::new(device.fork());
        for _ in 0..=round % 12 {
            let at = *random.pick(&places);
            let mut block = bytes[at..at + 512].to_vec();
            let place = (random.next_u64() % if round % 2 == 0 { 64 } else { 512 }) as usize;
            block[place] = random.next_u64() as u8;
            device.write_at(at as u64, &block);
        }
        in_world(move |cx| {
            let queue = queue(cx, device.clone());
            let options = CheckOptions { findings_max: 100, ..CheckOptions::default() };
            xfs::check(cx, &queue, &options).expect("the device works");
            if let Ok(fs) = try_mount(cx, device) {
                let _ = manifest::of_fs(cx, &*fs);
                fs.unmount(cx).expect("unmount");
            }
        });
    }
}

#[test]
fn nothing_writes_to_version_4() {
    let device = kept("default");
    in_world(move |cx| {
        let queue = queue(cx, device);
        let pages = cache::PageCache::new(cx.runtime(), cache::PageCacheConfig::default());
        let options = xfs::MountOptions { read_only: false, ..xfs::MountOptions::default() };
        let refused = xfs::Xfs::mount(cx, &queue, &pages, options).err().expect("refused");
        assert!(refused.to_string().contains("v4"), "{refused}");
        let refused = xfs::recover(cx, &queue).expect_err("refused");
        assert!(refused.to_string().contains("v4"), "{refused}");
    });
}

/// Records of version 4 may be without a checksum: whatever they hold gets an answer.
#[test]
fn damaged_logs_get_an_answer() {
    let device = kept("cut");
    let bytes = device.snapshot();
    let headers = bytes.chunks_exact(512).enumerate();
    let headers = headers.filter(|(_, block)| block[..4] == [0xfe, 0xed, 0xba, 0xbe]);
    let headers: Vec<usize> = headers.map(|(index, _)| index * 512).collect();
    assert!(headers.len() > 20, "{} records", headers.len());
    headers.iter().for_each(|at| device.write_at(*at as u64 + 32, &[0; 4]));
    let mut random = base::Rng::new(5, 0);
    let mut refused = 0;
    for _ in 0..100 {
        let device = Arc::new(device.fork());
        for _ in 0..20 {
            let within = (random.next_u64() % 4096) as usize;
            let at = *random.pick(&headers) + 44 + within;
            device.write_at(at as u64, &[random.next_u64() as u8]);
        }
        let mounted = in_world(move |cx| {
            let fs = try_mount(cx, device)?;
            let _ = manifest::of_fs(cx, &*fs);
            fs.unmount(cx).expect("unmount");
            Ok::<_, xfs::MountError>(())
        });
        refused += u32::from(mounted.is_err());
    }
    assert!((1..100).contains(&refused), "{refused} of 100 are refused");
}
