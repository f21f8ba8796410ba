//! Disks inside containers through the command: what is read out of each is what is read out of the
//! raw disk. Needs the tools that `cargo xtask judges` installs; the mount needs root.

#![allow(clippy::disallowed_methods, reason = "the host's own programs are tested, in real time")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command::{Mounted, Running, iopath, iopath_in, ok, ok_in};
use testkit::judge::{e2fsck, run_ok};

/// A disk with an ext4 file system, and one with a partition table and the same in partition 2.
struct Disks {
    dir: tempfile::TempDir,
}

impl Disks {
    fn new() -> Disks {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("etc/conf.d")).unwrap();
        fs::write(tree.join("etc/hostname"), "box\n").unwrap();
        let noise: Vec<u8> =
            (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(tree.join("noise"), &noise).unwrap();
        fs::write(tree.join("text"), "all work and no play\n".repeat(50_000)).unwrap();
        for number in 0..300 {
            fs::write(tree.join(format!("etc/conf.d/{number}")), format!("{number}\n")).unwrap();
        }
        ok_in(dir.path(), "mkfs -q -t ext4 --size 32M disk.img");
        ok_in(dir.path(), "cp -q -a tree/. disk.img:/");
        let disks = Disks { dir };
        let parts = disks.at("parts.img");
        let table = r"label: gpt\nstart=2048,size=4096\nstart=8192,size=65536\n";
        let script = format!(
            "truncate -s 48M {parts}; printf '{table}' | sfdisk -q {parts}; \
             dd if={disk} of={parts} bs=1M seek=4 conv=notrunc status=none",
            parts = parts.display(),
            disk = disks.at("disk.img").display()
        );
        run_ok("sh", &[&"-ec", &script]);
        disks
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn convert(&self, from: &str, to: &str, kind: &str, options: &[&str]) {
        let (from, to) = (self.at(from), self.at(to));
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"convert", &"-O", &kind];
        args.extend(options.iter().map(|option| option as &dyn AsRef<std::ffi::OsStr>));
        args.extend([&from as &dyn AsRef<std::ffi::OsStr>, &to]);
        run_ok("qemu-img", &args);
    }

    /// What `iopath manifest` prints of a target, less its name.
    fn manifest(&self, target: &str) -> String {
        ok_in(self.dir.path(), &format!("manifest {target}"))
    }
}

#[test]
fn every_reading_command_takes_every_container() {
    let disks = Disks::new();
    let wanted = disks.manifest("disk.img");
    assert!(wanted.contains("hostname") && wanted.lines().count() > 300);
    let fixed = ["-o", "subformat=fixed,force_size=on"];
    let zstd = ["-c", "-o", "compression_type=zstd"];
    let stream = ["-o", "subformat=streamOptimized"];
    for (name, kind, options) in [
        ("disk.qcow2", "qcow2", &["-c"][..]),
        ("zstd.qcow2", "qcow2", &zstd[..]),
        ("disk.vmdk", "vmdk", &stream[..]),
        ("disk.vhd", "vpc", &fixed[..]),
        ("disk.vhdx", "vhdx", &[][..]),
        ("disk.vdi", "vdi", &[][..]),
    ] {
        disks.convert("disk.img", name, kind, options);
        assert_eq!(disks.manifest(name), wanted, "{name}");
    }
    run_ok("img2simg", &[&disks.at("disk.img"), &disks.at("disk.simg")]);
    assert_eq!(disks.manifest("disk.simg"), wanted);
    let dir = disks.dir.path();
    let line = |line: &str| ok_in(dir, line);
    assert_eq!(line("cat disk.qcow2:/etc/hostname"), "box\n");
    for verb in ["ls -lR", "tree", "du", "find", "df", "stat"] {
        let (found, wanted) =
            (line(&format!("{verb} disk.vmdk:/etc")), line(&format!("{verb} disk.img:/etc")));
        assert_eq!(found.replace("disk.vmdk", "disk.img"), wanted, "{verb}");
    }
    line("check disk.vhdx");
    line("cp -q -a disk.vdi:/. out");
    run_ok("diff", &[&"-r", &"-x", &"lost+found", &disks.at("tree"), &disks.at("out")]);
}

#[test]
fn partitions_snapshots_and_backing_files_have_no_more_words_than_disks() {
    let disks = Disks::new();
    disks.convert("parts.img", "base.qcow2", "qcow2", &["-c"]);
    let dir = disks.dir.path();
    assert_eq!(ok_in(dir, "cat base.qcow2@2:/etc/hostname"), "box\n");
    let top = disks.at("top.qcow2");
    run_ok(
        "sh",
        &[
            &"-ec",
            &format!(
                "cd {} && qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 top.qcow2 && \
         qemu-img snapshot -c first top.qcow2 && qemu-io -c 'write -P 0 4M 32M' top.qcow2",
                dir.display()
            ),
        ],
    );
    let info = ok_in(dir, "info top.qcow2");
    for words in
        ["container: qcow2", "version: 3", "base.qcow2 (qcow2, ", "snapshot: 1 `first`", "GPT"]
    {
        assert!(info.contains(words), "{words}: {info}");
    }
    let info: serde_json::Value =
        serde_json::from_str(&ok_in(dir, "info --json top.qcow2")).unwrap();
    assert_eq!(info["container"]["format"], "qcow2");
    assert_eq!(info["container"]["snapshots"][0]["name"], "first");
    assert_eq!(info["partitions"][1]["number"], 2);
    assert_eq!(ok_in(dir, "--snapshot first cat top.qcow2@2:/etc/hostname"), "box\n");
    let gone = iopath_in(dir, "cat top.qcow2@2:/etc/hostname");
    assert!(!gone.status.success());
    let raw = iopath_in(dir, "--snapshot first cat disk.img:/etc/hostname");
    let error = String::from_utf8_lossy(&raw.stderr).into_owned();
    assert!(!raw.status.success() && error.contains("a raw image has no snapshots"), "{error}");
    drop(top);
}

#[test]
fn what_would_write_is_refused_with_the_way_on() {
    let disks = Disks::new();
    disks.convert("disk.img", "disk.vmdk", "vmdk", &[]);
    let before = fs::read(disks.at("disk.vmdk")).unwrap();
    let dir = disks.dir.path();
    for line in [
        "cp tree/text disk.vmdk:/new",
        "mkfs -t ext4 --force disk.vmdk",
        "serve nbd --write disk.vmdk",
        "replay disk.vmdk",
    ] {
        let output = iopath_in(dir, line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{line}");
        let words = "qemu-img convert -f vmdk -O raw disk.vmdk disk.img";
        assert!(
            error.contains("disk.vmdk: vmdk images are read") && error.contains(words),
            "{line}: {error}"
        );
    }
    assert!(fs::read(disks.at("disk.vmdk")).unwrap() == before, "the image was written");
}

/// Goal: every command that writes takes a qcow2 image, and what is in it is sound after each.
/// Method: verbs on a partition of an overlay, a file system made in an empty image; qemu-img and
/// the file system's own tools look at them.
#[test]
fn a_qcow2_image_is_written_in_place() {
    let disks = Disks::new();
    let dir = disks.dir.path();
    disks.convert("parts.img", "base.qcow2", "qcow2", &[]);
    let base = fs::read(disks.at("base.qcow2")).unwrap();
    let create = "create -q -f qcow2 -F qcow2 -b base.qcow2 top.qcow2";
    let qemu_img = |line: &str| {
        let done = Command::new("qemu-img").args(line.split(' ')).current_dir(dir).status();
        assert!(done.unwrap().success(), "qemu-img {line}");
    };
    qemu_img(create);
    for line in [
        "cp tree/noise top.qcow2@2:/copy",
        "mkdir -p top.qcow2@2:/new/dir",
        "rm -r top.qcow2@2:/etc/conf.d",
        "mv top.qcow2@2:/text :/new/text",
        "chmod 600 top.qcow2@2:/copy",
        "sync tree/ top.qcow2@2:/new/dir/",
        "replay top.qcow2@2",
        "repair -y top.qcow2@2",
    ] {
        ok_in(dir, line);
        qemu_img("check -q top.qcow2");
    }
    assert_eq!(ok_in(dir, "cat top.qcow2@2:/new/dir/etc/hostname"), "box\n");
    assert!(fs::read(disks.at("base.qcow2")).unwrap() == base, "what is behind was written");
    qemu_img("convert -O raw top.qcow2 flat.img");
    ok_in(dir, "cp flat.img@2:/copy copy");
    assert!(fs::read(disks.at("copy")).unwrap() == fs::read(dir.join("tree/noise")).unwrap());
    run_ok(
        "sh",
        &[&"-ec", &format!("cd {} && tail -c +4194305 flat.img > two.img", dir.display())],
    );
    e2fsck(&disks.at("two.img")).unwrap();

    qemu_img("create -q -f qcow2 empty.qcow2 320M");
    ok_in(dir, "mkfs -q -t xfs empty.qcow2");
    ok_in(dir, "cp -a tree/. empty.qcow2:/");
    let again = iopath_in(dir, "mkfs -t ext4 empty.qcow2");
    assert!(String::from_utf8_lossy(&again.stderr).contains("holds xfs"));
    let anew = iopath_in(dir, "mkfs -t ext4 --size 16M empty.qcow2");
    assert!(String::from_utf8_lossy(&anew.stderr).contains("holds a qcow2 image"));
    qemu_img("check -q empty.qcow2");
    qemu_img("convert -O raw empty.qcow2 xfs.img");
    testkit::judge::xfs_repair(&disks.at("xfs.img")).unwrap();
    // By word it is a file of bytes like any other.
    ok_in(dir, "--image-format raw mkfs -q -t ext4 --force --size 16M empty.qcow2");
    e2fsck(&disks.at("empty.qcow2")).unwrap();
}

#[test]
fn a_damaged_table_is_named_by_every_command_that_meets_it() {
    let disks = Disks::new();
    disks.convert("disk.img", "disk.qcow2", "qcow2", &[]);
    let path = disks.at("disk.qcow2");
    let mut whole = fs::read(&path).unwrap();
    let l1 = u64::from_be_bytes(whole[40..48].try_into().unwrap()) as usize;
    whole[l1..l1 + 8].copy_from_slice(&(1u64 << 40).to_be_bytes());
    fs::write(&path, whole).unwrap();
    for line in ["ls disk.qcow2:/", "check disk.qcow2", "info disk.qcow2"] {
        let output = iopath_in(disks.dir.path(), line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{line}");
        let words = "damaged qcow2 image: table of the first level (L1), entry 0";
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn containers_are_served_by_nbd_and_read_over_nbd() {
    let disks = Disks::new();
    disks.convert("disk.img", "disk.qcow2", "qcow2", &["-c"]);
    let (socket, copy) = (disks.at("a.sock"), disks.at("copy.img"));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_iopath"));
    serve.args(["serve", "nbd", "--listen"]).arg(&socket).arg(disks.at("disk.qcow2"));
    let mut server = serve.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = Running(server);
    let url = format!("nbd+unix:///?socket={}", socket.display());
    run_ok("nbdcopy", &[&url, &copy]);
    assert!(fs::read(&copy).unwrap() == fs::read(disks.at("disk.img")).unwrap());
    drop(server);
    // The file itself, on another's server: its bytes are recognised there, too.
    let socket = disks.at("b.sock");
    let mut serve = Command::new("qemu-nbd");
    serve.args(["-r", "-f", "raw", "-k"]).arg(&socket).arg(disks.at("disk.qcow2"));
    let _server = Running(serve.args(["-t"]).spawn().unwrap());
    for _ in 0..200 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let target = format!("nbd+unix:///?socket={}:/etc/hostname", socket.display());
    assert_eq!(ok(&["cat", &target]), "box\n");
}

#[test]
fn containers_are_mounted_read_only() {
    let disks = Disks::new();
    disks.convert("parts.img", "disk.vmdk", "vmdk", &["-o", "subformat=streamOptimized"]);
    let at = disks.at("mnt");
    fs::create_dir(&at).unwrap();
    let target = format!("{}@2", disks.at("disk.vmdk").display());
    let output = iopath(&["mount", &target, &at.display().to_string()]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("vmdk images are read"), "{error}");
    let mounted = Mounted::new(&["-o", "ro"], &target, at);
    run_ok("diff", &[&"-r", &"-x", &"lost+found", &disks.at("tree"), &mounted.dir]);
    assert!(fs::write(mounted.dir.join("new"), "x").is_err());
}
