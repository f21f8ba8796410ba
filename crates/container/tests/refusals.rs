//! What is not read: one error that names the file, the place and the value, and where there is
//! one, the way on.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{convert, disk, open};
use testkit::judge::run_ok;

/// The message for an image that is not opened, or whose disk is not read.
fn refusal(path: &Path) -> String {
    let read = |image: std::sync::Arc<dyn container::Image>| {
        let mut all = vec![0; image.size().min(64 << 20) as usize];
        image.read_at(0, &mut all)
    };
    let error = open(path).and_then(read).err();
    error.unwrap_or_else(|| panic!("{} is read", path.display())).to_string()
}

fn assert_refused(path: &Path, words: &[&str]) {
    let text = refusal(path);
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

fn qemu_img(args: &[&dyn AsRef<OsStr>]) {
    run_ok("qemu-img", args);
}

fn patch(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn chains_that_lead_back_or_never_end_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let create = |path: &Path, below: &str| {
        qemu_img(&[
            &"create", &"-q", &"-u", &"-f", &"qcow2", &"-b", &below, &"-F", &"qcow2", &path, &"1M",
        ]);
    };
    create(&at("a.qcow2"), "b.qcow2");
    create(&at("b.qcow2"), "a.qcow2");
    assert!(refusal(&at("a.qcow2")).contains("`a.qcow2` leads back into it"));
    create(&at("self.qcow2"), "self.qcow2");
    assert_refused(&at("self.qcow2"), &["`self.qcow2` leads back into it"]);
    for number in 0..66 {
        create(&at(&format!("{number}.qcow2")), &format!("{}.qcow2", number + 1));
    }
    assert!(refusal(&at("0.qcow2")).contains("more than 64 files"));
}

#[test]
fn files_outside_of_the_folder_are_opened_by_word_only() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let raw = disk(other.path(), "base.raw", 1);
    let path = dir.path().join("top.qcow2");
    let create = |below: &str| {
        qemu_img(&[
            &"create", &"-q", &"-u", &"-f", &"qcow2", &"-b", &below, &"-F", &"raw", &path, &"1M",
        ]);
    };
    create(&raw.display().to_string());
    let folder = other.path().display().to_string();
    assert_refused(&path, &["outside of the image's folder", "--image-dir", &folder]);
    let source = std::sync::Arc::new(container::FileSource::open(&path).unwrap());
    let files = container::HostFiles::beside(&path).and(other.path());
    container::open(source, &container::How::default(), &files).unwrap();
    // A link is where it leads to.
    std::os::unix::fs::symlink(&raw, dir.path().join("link")).unwrap();
    create("link");
    assert_refused(&path, &["`link`, which lies outside"]);
    create("missing.raw");
    assert_refused(&path, &["missing.raw", "No such file"]);
    create("json:{\"driver\":\"nbd\"}");
    assert_refused(&path, &["json:", "no file of this machine"]);
    create("nbd://localhost/x");
    assert_refused(&path, &["nbd://localhost/x", "no file of this machine"]);
    let data = dir.path().join("data.qcow2");
    let name = other.path().join("disk.data");
    let option = format!("data_file={}", name.display());
    qemu_img(&[&"create", &"-q", &"-f", &"qcow2", &"-o", &option, &data, &"1M"]);
    assert_refused(&data, &["disk.data", "outside of the image's folder"]);
}

#[test]
fn a_guest_cannot_name_files_by_writing_a_header_into_its_raw_disk() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    disk(dir.path(), "secret.raw", 2);
    // What a guest wrote to its raw disk: a qcow2 header that names another file.
    qemu_img(&[
        &"create",
        &"-q",
        &"-f",
        &"qcow2",
        &"-b",
        &at("secret.raw"),
        &"-F",
        &"raw",
        &at("base"),
    ]);
    qemu_img(&[
        &"create",
        &"-q",
        &"-u",
        &"-f",
        &"qcow2",
        &"-b",
        &"base",
        &"-F",
        &"raw",
        &at("top"),
        &"1M",
    ]);
    let top = at("top");
    // Raw by word: the header is content.
    let image = open(&top).unwrap();
    let mut start = [0; 4];
    image.read_at(0, &mut start).unwrap();
    assert_eq!(&start, b"QFI\xfb");
    // Without the word, as old images are.
    let header = fs::read(&top).unwrap();
    let format = header.windows(4).position(|w| w == [0xe2, 0x79, 0x2a, 0xca]).unwrap();
    patch(&top, format as u64, &[0, 0, 0, 1]);
    assert_refused(&top, &["does not record the format of its backing file `base`", "rebase"]);
}

#[test]
fn encrypted_and_marked_images_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.qcow2");
    let secret = "secret,id=s,data=abc123";
    // By AES: qemu-img measures its processor time for LUKS, and fails where that is too coarse.
    qemu_img(&[
        &"create",
        &"-q",
        &"--object",
        &secret,
        &"-f",
        &"qcow2",
        &"-o",
        &"encrypt.format=aes,encrypt.key-secret=s",
        &path,
        &"1M",
    ]);
    assert_refused(&path, &["qcow2", "encrypted (AES of old)", "qemu-img convert"]);
    patch(&path, 35, &[2]);
    assert_refused(&path, &["qcow2", "encrypted (LUKS)", "qemu-img convert"]);
    qemu_img(&[&"create", &"-q", &"-f", &"qcow2", &path, &"1M"]);
    patch(&path, 79, &[2]);
    assert_refused(&path, &["marked corrupt", "qemu-img check"]);
    patch(&path, 79, &[1 << 5]);
    assert_refused(&path, &["unknown features: bits 0x20"]);
    // Stale reference counts do not matter to a reader.
    patch(&path, 79, &[1]);
    open(&path).unwrap();
    patch(&path, 4, &[0, 0, 0, 4]);
    assert_refused(&path, &["version 4"]);
}

#[test]
fn tables_past_the_end_and_absurd_sizes_are_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let raw = disk(dir.path(), "disk.raw", 3);
    let path = dir.path().join("disk.qcow2");
    for (at, value, words) in [
        (24, u64::MAX >> 2, "header: a disk of"),
        (24, 1 << 60, "(L1): 2147483648 entries, too many"),
        (40, 1 << 40, "at byte 1099511627776, the file has"),
        (36, u64::from(u32::MAX) << 32, "(L1): 4294967295 entries, too many"),
        (36, 0x30000, "(L1): 0 entries, the disk needs 1"),
        (8, 1 << 33 | 5, "name of the backing file: "),
        (60, 9 << 32 | 1, "table of snapshots"),
    ] {
        convert(&raw, &path, "qcow2", "", false);
        if at == 8 {
            patch(&path, 16, &[0, 0, 0, 9]);
        }
        patch(&path, at, &value.to_be_bytes());
        assert_refused(&path, &["damaged qcow2 image", words]);
    }
    // An entry of each level that leads past the end.
    convert(&raw, &path, "qcow2", "", false);
    let whole = fs::read(&path).unwrap();
    let l1 = u64::from_be_bytes(whole[40..48].try_into().unwrap());
    let l2 = u64::from_be_bytes(whole[l1 as usize..][..8].try_into().unwrap()) << 8 >> 8;
    patch(&path, l2, &(1u64 << 40).to_be_bytes());
    assert_refused(&path, &["cluster at byte 1099511627776: it lies past the end"]);
    patch(&path, l2, &(1u64 << 40 | 512).to_be_bytes());
    assert_refused(&path, &["(L2) at byte", "entry 0: cluster at byte 1099511628288"]);
    patch(&path, l1, &(1u64 << 40).to_be_bytes());
    assert_refused(&path, &["(L1), entry 0: a table at byte 1099511627776"]);
}

#[test]
fn images_that_depend_on_parents_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let raw = disk(dir.path(), "disk.raw", 4);
    let base = dir.path().join("base.vmdk");
    convert(&raw, &base, "vmdk", "", false);
    let delta = dir.path().join("delta.vmdk");
    qemu_img(&[&"create", &"-q", &"-f", &"vmdk", &"-b", &base, &"-F", &"vmdk", &delta]);
    assert_refused(&delta, &["changes to a parent", "qemu-img convert"]);
    let vhd = dir.path().join("disk.vhd");
    convert(&raw, &vhd, "vpc", "subformat=dynamic", false);
    // A differencing image, with the sums that it would have.
    let mut whole = fs::read(&vhd).unwrap();
    let end = whole.len() - 512;
    for start in [0, end] {
        let footer = &mut whole[start..start + 512];
        footer[60..64].copy_from_slice(&[0, 0, 0, 4]);
        footer[64..68].fill(0);
        let sum = footer.iter().fold(0u32, |sum, &byte| sum.wrapping_add(byte.into()));
        footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
    }
    fs::write(&vhd, whole).unwrap();
    assert_refused(&vhd, &["VHD", "parent"]);
    let vdi = dir.path().join("disk.vdi");
    convert(&raw, &vdi, "vdi", "", false);
    patch(&vdi, 76, &[4, 0, 0, 0]);
    assert_refused(&vdi, &["depends on a parent"]);
}

#[test]
fn compressed_data_that_is_damaged_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let raw = disk(dir.path(), "disk.raw", 5);
    for (name, kind, options, place) in [
        ("zlib.qcow2", "qcow2", "", "compressed cluster at byte"),
        ("zstd.qcow2", "qcow2", "compression_type=zstd", "compressed cluster at byte"),
        ("a.vmdk", "vmdk", "subformat=streamOptimized", "compressed grain"),
    ] {
        let path = dir.path().join(name);
        convert(&raw, &path, kind, options, kind == "qcow2");
        let size = fs::metadata(&path).unwrap().len();
        for at in (size / 4..size / 2).step_by(100) {
            patch(&path, at, &[0x5a; 40]);
        }
        assert_refused(&path, &["damaged", place]);
    }
}

/// An overlay over a name that no qcow2 file can have was written, and could not be opened.
#[test]
fn overlays_over_names_that_are_too_long_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("overlay.qcow2");
    for (len, fits) in [(1023, true), (1024, false)] {
        let mut file = fs::File::create(&path).unwrap();
        let made = container::write::overlay(1 << 20, &"n".repeat(len), &mut file);
        assert_eq!(made.is_ok(), fits, "{made:?}");
        assert_eq!(file.metadata().unwrap().len() > 0, fits);
    }
}
