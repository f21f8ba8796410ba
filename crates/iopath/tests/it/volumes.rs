//! Volumes through the command: LUKS, LVM2 and dm-verity inside of each other, of partitions and of
//! containers. cryptsetup, lvm2 and veritysetup make them, QEMU reads them back.

#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::{iopath_in, ok_in};
use testkit::judge::{e2fsck, run_ok};
use testkit::lvm::{Loop, lvm2};

fn sh(dir: &Path, script: &str) -> String {
    let script = format!("cd {} && {script}", dir.display());
    run_ok("sh", &[&"-ec", &script])
}

/// What a command that must fail says.
fn refusal(dir: &Path, words: &str) -> String {
    let output = iopath_in(dir, words);
    assert!(!output.status.success(), "{words}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const FAST: &str = "--batch-mode --pbkdf-force-iterations 1000 --key-file key";

#[test]
fn luks_in_a_partition_in_a_qcow2_is_written_and_qemu_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("key"), "word\n").unwrap();
    sh(
        dir,
        &format!(
            "truncate -s 24M luks.img && cryptsetup luksFormat --type luks1 {FAST} luks.img && \
             truncate -s 32M disk.img && printf 'label: gpt\\nstart=2048,size=49152\\n' | \
             sfdisk -q disk.img && dd if=luks.img of=disk.img bs=1M seek=1 conv=notrunc \
             status=none && qemu-img convert -O qcow2 disk.img disk.qcow2"
        ),
    );
    let error = refusal(dir, "ls disk.qcow2@1:/");
    assert!(error.contains("disk.qcow2@1: this is LUKS1: give --key-file"), "{error}");
    let info = ok_in(dir, "info disk.qcow2@1");
    assert!(info.contains("LUKS1") && info.contains("aes-xts-plain64"), "{info}");
    fs::write(dir.join("wrong"), "word").unwrap();
    let error = refusal(dir, "ls --key-file wrong disk.qcow2@1:/");
    assert!(error.contains("LUKS1: the key fits no slot"), "{error}");
    // A file system over another volume needs no less than elsewhere.
    let error = refusal(dir, "mkfs -q -t ext4 disk.qcow2@1");
    assert!(error.contains("LUKS"), "{error}");
    ok_in(dir, "mkfs -q -t ext4 --key-file key disk.qcow2@1");
    fs::write(dir.join("data"), vec![7; 3 << 20]).unwrap();
    ok_in(dir, "cp -q --key-file key data disk.qcow2@1:/data");
    let info = ok_in(dir, "--json info --key-file key disk.qcow2@1");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["volumes"][0]["format"], "LUKS1");
    assert_eq!(info["format"], "ext4");
    assert!(ok_in(dir, "check --key-file key disk.qcow2@1").contains("clean"));
    // Standard input, as cryptsetup takes it.
    let piped = Command::new("sh")
        .args(["-c", "$IOPATH cat --key-file - disk.qcow2@1:/data < key | cmp - data"])
        .env("IOPATH", env!("CARGO_BIN_EXE_iopath"))
        .current_dir(dir)
        .status();
    assert!(piped.unwrap().success());
    let plain = "qemu-img convert --object secret,id=s,file=key --image-opts \
                 driver=luks,key-secret=s,file.filename=part.img -O raw plain.img";
    sh(
        dir,
        &format!(
            "qemu-img convert -O raw disk.qcow2 raw.img && dd if=raw.img of=part.img bs=1M \
             skip=1 count=24 status=none && {plain}"
        ),
    );
    e2fsck(&dir.join("plain.img")).unwrap();
    assert_eq!(
        ok_in(dir, "manifest plain.img"),
        ok_in(dir, "manifest --key-file key disk.qcow2@1")
    );
}

#[test]
fn a_logical_volume_in_luks_is_written_and_lvm2_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("key"), "k").unwrap();
    sh(dir, "truncate -s 40M pv.img");
    let device = Loop::new(&dir.join("pv.img"));
    lvm2(&[&device], &format!("pvcreate -qq {}", device.name()));
    lvm2(&[&device], &format!("vgcreate -qq -s 1m vg {}", device.name()));
    lvm2(&[&device], "lvcreate -an -Zn -Wn -y -qq -l 20 -n root vg");
    lvm2(&[&device], "lvcreate -an -Zn -Wn -y -qq -l 10 -n swap vg");
    drop(device);
    let error = refusal(dir, "ls pv.img:/");
    assert!(error.contains("name a volume: pv.img@vg/root, pv.img@vg/swap"), "{error}");
    let error = refusal(dir, "ls pv.img@vg/home:/");
    assert!(error.contains("no volume `home`; it has: root, swap"), "{error}");
    let before = fs::read(dir.join("pv.img")).unwrap();
    ok_in(dir, "mkfs -q -t ext4 pv.img@vg/root");
    ok_in(dir, "cp -q key pv.img@vg/root:/key");
    let after = fs::read(dir.join("pv.img")).unwrap();
    // The first extent begins at 1 MiB; nothing else has changed.
    assert!(before[..1 << 20] == after[..1 << 20] && before[21 << 20..] == after[21 << 20..]);
    fs::write(dir.join("root.img"), &after[1 << 20..21 << 20]).unwrap();
    e2fsck(&dir.join("root.img")).unwrap();
    assert_eq!(ok_in(dir, "cat root.img:/key"), "k");
    // The same in LUKS, by QEMU's driver.
    sh(
        dir,
        &format!(
            "truncate -s 44M luks.img && cryptsetup luksFormat --type luks1 {FAST} luks.img && \
             qemu-img convert -n --object secret,id=s,file=key -f raw pv.img --target-image-opts \
             driver=luks,key-secret=s,file.filename=luks.img"
        ),
    );
    assert_eq!(ok_in(dir, "cat --key-file key luks.img@vg/root:/key"), "k");
    ok_in(dir, "mkdir --key-file key luks.img@vg/root:/new");
    assert!(ok_in(dir, "ls --key-file key luks.img@vg/root:/").contains("new"));
    let info = ok_in(dir, "--json info --key-file key luks.img@vg/root");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(
        (&info["volumes"][0]["format"], &info["volumes"][1]["format"]),
        (&"LUKS1".into(), &"LVM2".into())
    );
}

#[test]
fn verity_checks_every_read_of_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), vec![5; 100_000]).unwrap();
    ok_in(dir, "mkfs -q -t ext4 --size 4M -d tree disk.img");
    let said = sh(dir, "veritysetup format disk.img hash.img | sed -n 's/Root hash:[ \t]*//p'");
    let root = said.trim();
    let read = format!("cat --root-hash {root} --hash-device hash.img disk.img:/file");
    assert_eq!(ok_in(dir, &read).len(), 100_000);
    let wrong = format!("{}{}", &root[1..], &root[..1]);
    let error = refusal(dir, &read.replace(root, &wrong));
    assert!(error.contains("not what the root hash says"), "{error}");
    // A byte of the file's content.
    let bytes = fs::read(dir.join("disk.img")).unwrap();
    let at = bytes.windows(4096).position(|block| block.iter().all(|&b| b == 5)).unwrap();
    let mut changed = bytes;
    changed[at + 5000] = 6;
    fs::write(dir.join("disk.img"), changed).unwrap();
    let error = refusal(dir, &read);
    assert!(error.contains("is not what the root hash says"), "{error}");
    let error =
        refusal(dir, &format!("rm --root-hash {root} --hash-device hash.img disk.img:/file"));
    assert!(error.contains("dm-verity is read, not written"), "{error}");
}

/// The command on a terminal of its own, where `typed` comes behind each question; answers what the
/// terminal showed, and whether it succeeded.
fn on_a_terminal(dir: &Path, words: &str, typed: &[&str]) -> (String, bool) {
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_iopath"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(dir);
    let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = Vec::new();
    for (number, line) in typed.iter().enumerate() {
        let asked = |shown: &[u8]| String::from_utf8_lossy(shown).matches("Passphrase for").count();
        let mut byte = [0];
        while asked(&shown) <= number || !shown.ends_with(b": ") {
            screen.read_exact(&mut byte).unwrap();
            shown.push(byte[0]);
        }
        keys.write_all(line.as_bytes()).unwrap();
    }
    screen.read_to_end(&mut shown).unwrap();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    (shown, script.wait().unwrap().success())
}

/// Without a key file the command only refused; with `--key-file -` a mount in the background got
/// an empty one, and its helper waited for one.
#[test]
fn a_passphrase_is_asked_for_on_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("key"), "open sesame").unwrap();
    fs::write(dir.join("motd"), "hello there\n").unwrap();
    sh(dir, &format!("truncate -s 24M l.img && cryptsetup luksFormat --type luks1 {FAST} l.img"));
    ok_in(dir, "mkfs -q -t ext4 --key-file key l.img");
    ok_in(dir, "cp -q --key-file key motd l.img:/motd");
    let (shown, good) = on_a_terminal(dir, "cat l.img:/motd l.img:/motd", &["open sesame\n"]);
    assert!(good && shown.matches("hello there").count() == 2, "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
    let typed = ["open\n", "open sesamf\u{7f}e\n"];
    let (shown, good) = on_a_terminal(dir, "check l.img", &typed);
    assert!(good && shown.contains("the key fits no slot"), "{shown}");
    let (shown, good) = on_a_terminal(dir, "ls l.img:/", &["a\n", "b\n", "c\n"]);
    assert!(!good && shown.contains("give --key-file FILE"), "{shown}");
    let (shown, good) = on_a_terminal(dir, "ls l.img:/", &["open\u{3}"]);
    assert!(!good && shown.contains("interrupted"), "{shown}");
    // Who only looks at a volume is not asked.
    let (shown, good) = on_a_terminal(dir, "info l.img", &[]);
    assert!(good && shown.contains("LUKS1"), "{shown}");
    fs::create_dir(dir.join("m")).unwrap();
    let (shown, good) = on_a_terminal(dir, "mount l.img m", &["open sesame\n"]);
    assert!(good, "{shown}");
    sh(dir, "cmp m/motd motd && umount m");
    let piped = "cat key | timeout 60 \"$IOPATH\" mount --key-file - l.img m; \
                 cmp m/motd motd; umount m";
    let mut command = Command::new("sh");
    command.args(["-ec", piped]).current_dir(dir).env("IOPATH", env!("CARGO_BIN_EXE_iopath"));
    assert!(command.status().unwrap().success());
}
