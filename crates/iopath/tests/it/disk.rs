//! Disks made from plans, beside the tools that know them: sfdisk and partx read the tables,
//! fsck.vfat and mtools the FAT, the kernel ext4 and XFS, swaplabel the swap, qemu-img, simg2img
//! and zstd the containers. Needs root, loop devices, fdisk, dosfstools, mtools, qemu-utils, rsync.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{bash_in, iopath_in, ok_in};
use serde_json::Value;
use testkit::judge::{self, LoopMount};

struct Bench {
    dir: tempfile::TempDir,
}

const PLAN: &str = r#"
uuid = "6a1a5a2e-97a4-4c1d-9a0e-7d2a53f3a001"

[[file]]
path = "boot.bin"
offset = "20K"

[[partition]]
name = "esp"
type = "esp"
format = "vfat"
label = "ESP"
source = "esp"
bootable = true

[[partition]]
name = "swap"
type = "swap"
format = "swap"
label = "swapped"
size = "8M"
fs-uuid = "00112233-4455-6677-8899-aabbccddeeff"

[[partition]]
name = "root größer"
type = "root-x86-64"
format = "ext4"
source = "tree"
owner = "0:0"
grow-file-system = true
read-only = true

[[partition]]
name = "data"
type = "home"
format = "xfs"
source = "tree.tar"
size = "300M"

[[partition]]
name = "raw"
type = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
image = "boot.bin"
size = "2M"
uuid = "11111111-2222-3333-4444-555555555555"
"#;

impl Bench {
    fn new() -> Bench {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let bench = Bench { dir: tempfile::tempdir_in(place).expect("a directory") };
        bench.bash(
            "mkdir -p esp/EFI/BOOT tree/etc
             head -c 700000 /dev/urandom > esp/EFI/BOOT/BOOTX64.EFI
             echo 'a long name' > 'esp/EFI/a rather long Name.conf'; : > esp/empty
             touch -d '2020-02-02 02:02:02 UTC' esp/EFI/BOOT/BOOTX64.EFI
             for i in $(seq 300); do echo $i > tree/etc/$i; done; ln -s etc tree/link
             tar cf tree.tar -C tree .; head -c 100000 /dev/urandom > boot.bin",
        );
        fs::write(bench.path("plan.toml"), PLAN).expect("written");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    fn bash(&self, script: &str) -> String {
        let output = bash_in(self.dir.path(), &format!("set -e\n{script}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn ok(&self, line: &str) -> String {
        ok_in(self.dir.path(), line)
    }

    /// A plan that is refused; answers how.
    #[track_caller]
    fn refused(&self, plan: &str) -> String {
        fs::write(self.path("bad.toml"), plan).expect("written");
        let output = iopath_in(self.dir.path(), "disk create bad.img bad.toml");
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{plan}: {error}");
        assert!(!self.path("bad.img").exists(), "{plan}");
        error
    }

    /// The bytes of a partition as a file of its own.
    fn extract(&self, image: &str, part: &Value, name: &str) -> PathBuf {
        let number = |key: &str| part[key].as_u64().expect("a number");
        self.bash(&format!(
            "dd if={image} of={name} bs=512 skip={} count={} conv=sparse status=none",
            number("start"),
            number("size")
        ));
        self.path(name)
    }
}

#[test]
fn a_disk_is_what_its_plan_says() {
    let bench = Bench::new();
    bench.ok("disk create -q disk.img plan.toml");
    let table = bench.bash("sfdisk -J disk.img; sfdisk -V -q disk.img");
    let table: Value = serde_json::from_str(&table).expect("JSON");
    let table = &table["partitiontable"];
    assert_eq!(table["label"], "gpt");
    assert_eq!(table["id"], "6A1A5A2E-97A4-4C1D-9A0E-7D2A53F3A001");
    let parts = table["partitions"].as_array().expect("a list");
    let names: Vec<_> = parts.iter().map(|part| part["name"].as_str().expect("text")).collect();
    assert_eq!(names, ["esp", "swap", "root größer", "data", "raw"]);
    assert_eq!(parts[4]["uuid"], "11111111-2222-3333-4444-555555555555");
    let bits = |part: &Value| part["attrs"].as_str().unwrap_or_default().to_owned();
    assert_eq!(bits(&parts[0]), "LegacyBIOSBootable");
    assert_eq!(bits(&parts[2]), "GUID:59,60");
    assert!(parts.iter().all(|part| part["start"].as_u64().expect("a number") % 2048 == 0));
    // sfdisk has names of its own for the types.
    let listed = bench.bash("LC_ALL=C sfdisk -l -o Type disk.img");
    for kind in ["EFI System", "Linux swap", "Linux root (x86-64)", "Linux home"] {
        assert!(listed.contains(kind), "{kind}: {listed}");
    }
    // The kernel of the test machine may have no FAT: mtools reads it.
    bench.extract("disk.img", &parts[0], "esp.img");
    bench.bash("fsck.vfat -n esp.img");
    bench.bash(
        "mkdir out; TZ=UTC mcopy -s -m -n -i esp.img '::*' out/; diff -r esp out
         test \"$(stat -c %Y out/EFI/BOOT/BOOTX64.EFI)\" = 1580608922",
    );
    bench.extract("disk.img", &parts[1], "swap.img");
    let swap = bench.bash("swaplabel swap.img; blkid -p -o value -s TYPE swap.img");
    assert!(
        swap.contains("00112233-4455-6677-8899-aabbccddeeff") && swap.contains("swapped"),
        "{swap}"
    );
    let root = bench.extract("disk.img", &parts[2], "root.img");
    judge::e2fsck(&root).expect("sound");
    let data = bench.extract("disk.img", &parts[3], "data.img");
    judge::xfs_repair(&data).expect("sound");
    for (image, kind) in [(root, "ext4"), (data, "xfs")] {
        let mount = LoopMount::new(&image, kind, "ro").expect("mounted");
        let at = mount.path();
        let same = bench.bash(&format!(
            "rsync -aHn --checksum --delete -i --exclude /lost+found tree/ {}/",
            at.display()
        ));
        assert_eq!(same, "", "{kind}");
    }
    bench.bash("cmp -n 100000 disk.img boot.bin -i 20480:0");
    bench.extract("disk.img", &parts[4], "raw.img");
    bench.bash("cmp -n 100000 raw.img boot.bin");
    let info = bench.ok("info disk.img");
    for line in ["esp", "swap space", "ext4", "xfs", "type c12a7328"] {
        assert!(info.contains(line), "{line}: {info}");
    }
    let listed = bench.bash("partx -g -o NR,NAME,SECTORS disk.img");
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert!(listed.contains("root größer") && words.ends_with(&["5", "raw", "4096"]), "{listed}");
}

/// The same plan, another day, another folder: the same disk, in every format.
#[test]
fn disks_are_equal_in_every_format() {
    let bench = Bench::new();
    bench.bash(
        "export SOURCE_DATE_EPOCH=1600000000
         iopath disk create -q a.img plan.toml
         mkdir other; cp -a esp tree tree.tar boot.bin plan.toml other/",
    );
    bench.bash(&format!(
        "export SOURCE_DATE_EPOCH=1600000000; sed '/^uuid/d' plan.toml > other/plan2.toml
         cp other/plan2.toml plan2.toml; cd other; taskset -c 0 {0} disk create -q b.img plan.toml
         cmp b.img ../a.img; {0} disk create -q c.img plan2.toml; cd ..
         iopath disk create -q c.img plan2.toml; cmp c.img other/c.img",
        env!("CARGO_BIN_EXE_iopath")
    ));
    bench.bash(
        "export SOURCE_DATE_EPOCH=1600000000
         for n in d.qcow2 d.vhd d.simg d.zst; do
             iopath disk create -q $n plan.toml; cp $n again; iopath disk create -q -F $n plan.toml
             cmp $n again; done
         qemu-img check -q d.qcow2; qemu-img compare -q a.img d.qcow2
         qemu-img info -f vpc d.vhd | grep -q 'file format: vpc'
         qemu-img convert -f vpc -O raw d.vhd v.raw; cmp a.img v.raw
         simg2img d.simg s.raw; cmp a.img s.raw; zstd -qdc d.zst | cmp - a.img
         test $(stat -c %s d.zst) -lt 6000000; test $(($(stat -c %s d.vhd) % 1048576)) = 512",
    );
    for image in ["d.qcow2", "d.vhd", "d.simg", "d.zst"] {
        assert_eq!(bench.ok(&format!("cat {image}@3:/etc/77")), "77\n", "{image}");
    }
    // `mkfs -d` writes them too.
    bench.bash(
        "iopath mkfs -q -d tree one.qcow2; qemu-img check -q one.qcow2
         test \"$(iopath cat one.qcow2:/etc/300)\" = 300",
    );
}

#[test]
fn an_mbr_has_four_partitions() {
    let bench = Bench::new();
    let plan = |parts: usize| {
        let part = "[[partition]]\ntype = \"linux-generic\"\nsize = \"1M\"\n";
        let rest =
            "[[partition]]\ntype = \"0c\"\nformat = \"vfat\"\nsize = \"rest\"\nbootable = true\n";
        format!(
            "table = \"mbr\"\nsize = \"64M\"\nuuid = \"78563412-0000-0000-0000-000000000000\"\n\
             [[file]]\npath = \"code.bin\"\noffset = 0\n{}{rest}",
            part.repeat(parts - 1)
        )
    };
    bench.bash("head -c 440 /dev/urandom > code.bin");
    fs::write(bench.path("mbr.toml"), plan(3)).expect("written");
    bench.ok("disk create -q mbr.img mbr.toml");
    let table = bench.bash("sfdisk -d mbr.img; sfdisk -V -q mbr.img; cmp -n 440 mbr.img code.bin");
    for line in
        ["label: dos", "label-id: 0x12345678", "type=83", "type=c, bootable", "size=      124928"]
    {
        assert!(table.contains(line), "{line}: {table}");
    }
    assert!(bench.refused(&plan(5)).contains("an MBR holds 4"));
}

#[test]
fn impossible_plans_are_refused_by_name() {
    let bench = Bench::new();
    let part = |text: &str| format!("[[partition]]\nname = \"p\"\n{text}\n");
    for (plan, wanted) in [
        ("nonsense = 1".to_owned(), "unknown field `nonsense`"),
        ("align = 1000".to_owned(), "align: 1000 is not a power of two"),
        (part("size = \"much\""), "much"),
        (part("type = \"mine\"\nsize = \"1M\""), "type `mine`: not one of root"),
        (part(""), "partition 1 (p): has no size"),
        (part("size = \"rest\""), "`rest` needs the size of the disk"),
        (part("format = \"btrfs\"\nsize = \"1M\""), "format `btrfs`: not ext2"),
        (part("format = \"ext4\"\nsource = \"none\""), "none: No such file"),
        (part("source = \"tree\"\nsize = \"1M\""), "a source needs a format"),
        (part("image = \"boot.bin\"\nsize = \"64K\""), "what it holds needs 100000"),
        (part("size = \"1M\"\noffset = \"1000K\""), "not a multiple of 1048576"),
        (format!("size = \"3M\"\n{}", part("size = \"4M\"")), "the disk has 3145728"),
        (
            format!("{}{}", part("size = \"4M\""), part("size = \"1M\"\noffset = \"2M\"")),
            "partition 1 (p) and partition 2 (p) overlap",
        ),
        (
            "size = \"8M\"\n[[file]]\npath = \"boot.bin\"\noffset = 512".to_owned(),
            "offset 512 lies in the partition table",
        ),
        (
            part("format = \"ext4\"\nsource = \"esp\"\nsize = \"700K\""),
            "partition 1 (p): its content",
        ),
        (part("format = \"swap\"\nsize = \"8K\""), "too few"),
        (part("format = \"vfat\"\nlabel = \"larger than eleven\"\nsize = \"40M\""), "11 letters"),
    ] {
        let error = bench.refused(&plan);
        assert!(error.contains(wanted), "{plan}: {error}");
    }
    bench.bash("mkdir l; ln -s x l/link");
    let error = bench.refused(&part("format = \"vfat\"\nsource = \"l\""));
    assert!(error.contains("l/link: FAT holds files and directories only"), "{error}");
    bench.bash("echo precious > bad.img");
    fs::write(bench.path("bad.toml"), part("size = \"1M\"")).expect("written");
    let output = iopath_in(bench.dir.path(), "disk create bad.img bad.toml");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--force"));
    assert_eq!(fs::read_to_string(bench.path("bad.img")).expect("there"), "precious\n");
}
