//! Files with verity, beside fsverity(1) and e2fsck.

use std::sync::Arc;

use crate::support::*;
use base::{Errno, Ino};
use device::{MemoryDevice, RecordDevice};
use ext4::check::{CheckOptions, Rule};
use ext4::format::InodeFlags;
use ext4::format::verity::{HashAlg, VerityParams};
use rt::Cx;
use testkit::crash::{self, CrashConfig};
use testkit::judge;
use vfs::{FallocMode, FileSystem, SetAttr};

const BYTES: u64 = 48 << 20;
const CELLS: [Cell; 4] = [
    Cell::new("ext4", 4096).features("verity"),
    Cell::new("ext4", 1024).features("verity,fast_commit,orphan_file"),
    Cell::new("ext4", 65536).features("verity,^has_journal"),
    Cell::new("ext4", 2048).features("verity,bigalloc,inline_data,casefold"),
];

fn params(alg: HashAlg, block_size: u32, salt: &[u8]) -> VerityParams {
    VerityParams { alg, block_size, salt: salt.to_vec() }
}

fn content(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    pattern(size as u64, 0, &mut bytes);
    bytes
}

/// What `fsverity digest` prints of this content.
fn judged(bytes: &[u8], params: &VerityParams) -> String {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("content");
    let alg = format!("--hash-alg={}", params.alg.name());
    let block = format!("--block-size={}", params.block_size);
    let digits: String = params.salt.iter().map(|byte| format!("{byte:02x}")).collect();
    let salt = format!("--salt={digits}");
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"digest", &"--compact", &alg, &block];
    if !params.salt.is_empty() {
        args.push(&salt);
    }
    let path = file.path();
    args.push(&path);
    let output = judge::run("fsverity", &args);
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    format!("{}:{text}", params.alg.name())
}

fn read(cx: &mut Cx, fs: &dyn FileSystem, ino: Ino) -> Result<Vec<u8>, Errno> {
    let size = fs.getattr(cx, ino)?.size;
    let mut bytes = vec![0; size as usize];
    let mut at = 0;
    while at < bytes.len() {
        at += fs.read(cx, ino, at as u64, &mut bytes[at..])?;
    }
    Ok(bytes)
}

fn file(cx: &mut Cx, fs: &dyn FileSystem, name: &str, bytes: &[u8]) -> Ino {
    let ino = create(cx, fs, fs.root(), name);
    if !bytes.is_empty() {
        fs.write(cx, ino, 0, bytes).expect("room");
    }
    ino
}

/// Goal: files of no, one and several levels have the digests of fsverity, cannot change, read the
/// same at once and after a mount, and leave nothing behind when they go.
#[test]
fn files_have_the_digests_of_fsverity_and_do_not_change() {
    for cell in CELLS {
        rt::testing::world(|cx| {
            let device = cell.fresh(cx, if cell.block > 4096 { 160 << 20 } else { BYTES });
            let (fs, _) = mount(cx, device.clone());
            let small = params(HashAlg::Sha512, 1024, &[0xaa, 0xbb]);
            let usual = params(HashAlg::Sha256, cell.block.min(4096), b"");
            let large = params(HashAlg::Sha256, cell.block, &[7; 32]);
            let mut made = Vec::new();
            let sizes: &[usize] = match cell.block {
                4096 => &[0, 1, 60, 1024, 4096, 4097, 70_000, 530_000],
                _ => &[0, 60, 4097, 70_000],
            };
            for (n, &size) in sizes.iter().enumerate() {
                for (params, letter) in [(&small, 's'), (&usual, 'u'), (&large, 'l')] {
                    let bytes = content(size);
                    let ino = file(cx, &*fs, &format!("{letter}{n}"), &bytes);
                    let signature = vec![5; if letter == 'l' { 4000 } else { 0 }];
                    let made_of = fs.enable_verity(cx, ino, params, &signature);
                    let descriptor = made_of.unwrap_or_else(|e| panic!("{cell:?} {size}: {e}"));
                    assert_eq!(
                        descriptor.digest_text(),
                        judged(&bytes, params),
                        "{size} {params:?}"
                    );
                    assert_eq!(read(cx, &*fs, ino).expect("readable"), bytes);
                    made.push((ino, bytes, descriptor));
                }
            }
            let ino = made[10].0;
            let again = fs.enable_verity(cx, ino, &usual, &[]);
            assert_eq!(again.expect_err("it has it"), Errno::EEXIST);
            assert_eq!(fs.write(cx, ino, 0, b"x").expect_err("fixed"), Errno::EPERM);
            let cut = SetAttr { size: Some(0), ..SetAttr::default() };
            assert_eq!(fs.setattr(cx, ino, &cut).expect_err("fixed"), Errno::EPERM);
            let more = fs.fallocate(cx, ino, FallocMode::Allocate { keep_size: true }, 0, 1 << 20);
            assert_eq!(more.expect_err("fixed"), Errno::EPERM);
            let flags = fs.getattr(cx, ino).expect("attributes").flags;
            assert_ne!(flags & InodeFlags::VERITY.bits(), 0);
            close(cx, &*fs, &device, &format!("{cell:?}"));
            let (fs, _) = mount(cx, device.clone());
            for (ino, bytes, descriptor) in &made {
                assert_eq!(fs.verity(cx, *ino).expect("sound").as_ref(), Some(descriptor));
                assert_eq!(&read(cx, &*fs, *ino).expect("readable"), bytes);
            }
            for n in 0..sizes.len() {
                for letter in ['s', 'u', 'l'] {
                    fs.unlink(cx, fs.root(), format!("{letter}{n}").as_bytes()).expect("unlink");
                }
            }
            close(cx, &*fs, &device, &format!("{cell:?}: removed"));
        });
    }
}

/// Goal: what the device has changed is not read: content, tree, a hole that nobody made, and the
/// descriptor; the place is named.
#[test]
fn what_was_changed_is_not_read() {
    rt::testing::world(|cx| {
        let device = CELLS[0].fresh(cx, BYTES);
        let (fs, _) = mount(cx, device.clone());
        let bytes = content(1 << 20);
        let ino = file(cx, &*fs, "file", &bytes);
        fs.enable_verity(cx, ino, &VerityParams::default(), &[]).expect("room");
        let plain = file(cx, &*fs, "plain", b"no verity");
        assert_eq!(fs.verity(cx, plain).expect("sound"), None);
        fs.unmount(cx).expect("unmount");
        let image = device.snapshot().to_vec();
        let place = |needle: &[u8]| {
            image.windows(needle.len()).position(|window| window == needle).expect("on the device")
        };
        let data = place(&bytes[600_000..600_032]);
        let leaf = VerityParams::default().hash(&bytes[..4096]);
        let descriptor = place(&[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 16, 0]);
        for (at, wrong, errno) in [
            (data, 600_000 / 4096 * 4096, Errno::EIO),
            (place(&leaf), 0, Errno::EIO),
            (descriptor, 0, Errno::EFSCORRUPTED),
            (descriptor + 16, 0, Errno::EIO),
        ] {
            let mut image = image.clone();
            image[at] ^= 4;
            let device = Arc::new(MemoryDevice::from_image(&image));
            let (fs, _) = mount(cx, device.clone());
            let mut block = vec![0; 4096];
            let result = fs.read(cx, ino, wrong, &mut block);
            assert_eq!(result.expect_err("it was changed"), errno);
            let note = fs.read_error().expect("a note");
            assert!(note.contains("verity") && note.contains(&ino.to_string()), "{note}");
            if at == data {
                fs.read(cx, ino, 0, &mut block).expect("another block");
                assert_eq!(block, bytes[..4096]);
            }
            fs.unmount(cx).expect("unmount");
            let queue = queue(cx, device);
            let report = ext4::check(cx, &queue, &CheckOptions::default()).expect("a check");
            let found = report.findings.iter().any(|found| found.rule == Rule::Verity);
            assert_eq!(found, errno == Errno::EFSCORRUPTED);
        }
    });
}

/// Goal: whatever a power cut leaves, the file has its content, with verity or without, and no
/// block behind its end that is not the tree's.
#[test]
fn a_cut_leaves_the_file_with_verity_or_without() {
    let cell = Cell::new("ext4", 1024).features("verity").journal(1024);
    rt::testing::real(|cx| {
        let device = cell.fresh(cx, 16 << 20);
        let (fs, _) = mount(cx, device.clone());
        let bytes = content(200_000);
        let ino = file(cx, &*fs, "file", &bytes);
        fs.unmount(cx).expect("unmount");
        let base = device.fork();
        let record = Arc::new(RecordDevice::new(device.clone()));
        let (fs, _) = mount(cx, record.clone());
        let params = params(HashAlg::Sha256, 1024, b"salt");
        let descriptor = fs.enable_verity(cx, ino, &params, &[]).expect("room");
        fs.fsync(cx, ino, false).expect("durable");
        record.mark(1);
        fs.shutdown_hard();
        let config = CrashConfig { random: 40, ..CrashConfig::new(3) };
        crash::explore(&config, &base, &record.log(), |image, case| {
            let (fs, _) = mount(cx, image.clone());
            let found = fs.verity(cx, ino).map_err(|errno| errno.to_string())?;
            let content = read(cx, &*fs, ino).map_err(|errno| errno.to_string())?;
            fs.unmount(cx).map_err(|errno| errno.to_string())?;
            if content != bytes {
                return Err("other content".into());
            }
            if !case.promised.is_empty() && found.as_ref() != Some(&descriptor) {
                return Err("no verity after fsync".into());
            }
            cell.check(cx, &image)?;
            judge::e2fsck_device(&image)
        });
    });
}

/// Goal: without the feature, without extents and with impossible parameters nothing happens; where
/// there is no room, everything is as before.
#[test]
fn what_cannot_have_verity_stays_as_it_is() {
    rt::testing::world(|cx| {
        let usual = VerityParams::default();
        for (features, errno) in
            [("", Errno::EOPNOTSUPP), ("verity,^extent,^64bit", Errno::EOPNOTSUPP)]
        {
            let device = Cell::new("ext4", 4096).features(features).fresh(cx, BYTES);
            let (fs, _) = mount(cx, device);
            let ino = file(cx, &*fs, "f", b"x");
            assert_eq!(fs.enable_verity(cx, ino, &usual, &[]).expect_err("refused"), errno);
        }
        let device = CELLS[0].fresh(cx, 16 << 20);
        let (fs, _) = mount(cx, device.clone());
        let ino = file(cx, &*fs, "f", &content(1 << 20));
        for params in [
            params(HashAlg::Sha256, 512, b""),
            params(HashAlg::Sha256, 8192, b""),
            params(HashAlg::Sha256, 4096, &[1; 33]),
        ] {
            let refused = fs.enable_verity(cx, ino, &params, &[]);
            assert_eq!(refused.expect_err("impossible"), Errno::EINVAL);
        }
        let filler = create(cx, &*fs, fs.root(), "filler");
        let (mut at, mut before) = (0, u64::MAX);
        while at != before {
            before = at;
            while fs.write(cx, filler, at, &[1; 4096]).is_ok() {
                at += 4096;
            }
            fs.sync(cx).expect("sync");
        }
        let full = fs.enable_verity(cx, ino, &usual, &[]);
        assert_eq!(full.expect_err("no room"), Errno::ENOSPC);
        assert_eq!(fs.verity(cx, ino).expect("sound"), None);
        fs.write(cx, ino, 0, b"still").expect("it can change");
        fs.unlink(cx, fs.root(), b"filler").expect("unlink");
        fs.enable_verity(cx, ino, &usual, &[]).expect("room");
        close(cx, &*fs, &device, "full");
    });
}
