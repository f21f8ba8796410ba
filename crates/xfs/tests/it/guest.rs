//! What we wrote, recovered and changed by a kernel in a guest, and what it wrote by us: metadata
//! directories, realtime sections with and without groups, quota beside them. See
//! [`testkit::guest`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::grow;
use crate::metadir;
use crate::realtime::{self as section, DATA, Section, fill};
use crate::world::{file, loaded, mkdir};
use base::Ino;
use block::Device;
use device::MemoryDevice;
use rt::Cx;
use testkit::format::Format;
use testkit::guest;
use vfs::quota::{Grace, Kind, Limits, Project, Quota};
use vfs::{FallocMode, FileSystem, SetAttr};
use xfs::{MountOptions, QuotaMode, Xfs};

/// Where the files are.
#[derive(Clone, Copy, Debug)]
enum Cell {
    /// With a second disk.
    Section(Section),
    Data(metadir::Made),
}

const CELLS: [Cell; 7] = [
    Cell::Section(section::SHARED),
    Cell::Section(section::COUNTED),
    Cell::Section(section::MAPPED),
    Cell::Section(section::GROUPS),
    Cell::Section(section::WIDE),
    Cell::Data(metadir::ALL),
    Cell::Data(metadir::SMALL),
];

const BYTES: u64 = 64 << 20;

impl Cell {
    fn shares(&self) -> bool {
        match self {
            Cell::Section(section) => section.trees.starts_with("reflink=1"),
            Cell::Data(_) => true,
        }
    }

    /// Linux counts nothing beside a section without groups; the next mount of ours counts anew.
    fn counted(&self) -> bool {
        !matches!(self, Cell::Section(section) if section.group == 0)
    }

    fn fresh(&self, cx: &mut Cx) -> Arc<MemoryDevice> {
        match self {
            Cell::Section(section) => section.fresh(cx, DATA + BYTES),
            Cell::Data(made) => made.fresh(cx, BYTES),
        }
    }

    fn mount(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) -> Arc<Xfs> {
        let quota = QuotaMode::Count([Some(true); 3]);
        let options = MountOptions { read_only: false, quota, ..MountOptions::default() };
        let device: Arc<dyn Device> = device.clone();
        match self {
            Cell::Section(_) => section::mount(cx, device, 8 << 20, options),
            Cell::Data(_) => crate::world::mount_with(cx, device, 8 << 20, options).0,
        }
    }

    /// Our check and the newest xfs_repair find nothing.
    fn sound(&self, cx: &mut Cx, device: &Arc<MemoryDevice>) {
        match self {
            Cell::Section(section) => section::sound(*section, cx, device, "after the guest"),
            Cell::Data(made) => metadir::sound(*made, cx, device, "after the guest"),
        }
    }

    /// Where the image is cut into disks.
    fn cuts(&self) -> Vec<usize> {
        match self {
            Cell::Section(_) => vec![DATA as usize],
            Cell::Data(_) => Vec::new(),
        }
    }
}

/// What each disk of the guest has: `FIRST` or `FIRST:SECOND`, and whether blocks are shared.
const JOB: &str = "modprobe xfs
sums() { find . -type f | xargs md5sum | while read sum f; do echo $1 $n $f $sum; done; }
accounts() {
  for k in u g p; do for r in b i r; do
    xfs_quota -x -c \"report -$k -n -N -$r\" /mnt | grep '^#' | sed \"s/^/$1 $n $k $r /\"
  done; done; }
for cell in CELLS; do
  IFS=, read n data rest shares <<END
$cell
END
  [ $rest = none ] && options= || options=,rtdev=$rest
  mount -o uquota,gquota,pquota$options $data /mnt || { echo REFUSED $n; continue; }
  cd /mnt
  sums OURS; accounts BEFORE
  echo GRACE $n $(xfs_quota -x -c 'state -u' /mnt | grep 'grace time')
  xfs_io -c 'pwrite -q -S 0x55 8m 64k' full 2>&1 | grep -q 'quota exceeded' && echo FULL $n
  if [ $shares = true ]; then
    xfs_io -c 'pwrite -q -S 0x55 0 64k' full 2>&1 | grep -q 'quota exceeded' && echo COPIES $n
    cp --reflink=always a c; xfs_io -f -c 'reflink b' d
    xfs_io -f -c 'reflink c 0 0 400000' e
    seq 4096 8192 405504 | while read at; do echo reflink c $at $at 4096; done |
      xfs_io -f g >/dev/null
  else cp a c; cp b d; fi
  xfs_io -c 'pwrite -q -S 0x77 40000 50000' -c fsync d
  xfs_io -c 'fpunch 100000 1000000' -c fsync a
  mkdir k; i=0; while [ $i -lt 150 ]; do echo kernel $i >k/a-name-that-is-long-$i; i=$((i+1)); done
  chown 1002:1001 c k/*1; mv dir/f3 k/moved; ln a k/linked; rm dir/f1* full
  xfs_quota -x -c 'limit -u bsoft=8m bhard=9m isoft=50 ihard=60 rtbsoft=3m rtbhard=4m 1002' /mnt
  sync; xfs_io -c 'truncate 500000' c; rm b; xfs_io -c fsync a
  sums KERNEL; sync; xfs_spaceman -c 'prealloc -s' /mnt; accounts AFTER
  xfs_io -x -c 'shutdown -f' /mnt; cd /; umount /mnt
done
";

/// What xfs_quota says of the periods that [`change`] sets.
const GRACE: &str = "Blocks grace time: [2 days] Inodes grace time: [3 days] Realtime Blocks grace \
                     time: [4 days]";

/// Sums and accounts: what is said of what.
type Said = BTreeMap<String, String>;

fn sums(cx: &mut Cx, fs: &Xfs, dir: Ino, path: &str, found: &mut Said) {
    let mut names = Vec::new();
    let emit = &mut |entry: vfs::DirEntry<'_>| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    };
    fs.readdir(cx, dir, 0, emit).expect("readdir");
    for name in names.into_iter().filter(|name| name != "." && name != "..") {
        let attr = fs.lookup(cx, dir, name.as_bytes()).expect("lookup");
        let path = format!("{path}/{name}");
        if attr.kind == vfs::FileType::Directory {
            sums(cx, fs, attr.ino, &path, found);
        } else {
            let bytes = section::read_all(cx, fs, attr.ino, 16 << 20);
            found.insert(path, md5(&bytes));
        }
    }
}

/// What `md5sum` says of some bytes.
fn md5(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    let args: [&dyn AsRef<std::ffi::OsStr>; 1] = [&file.path()];
    let output = testkit::judge::run("md5sum", &args);
    crate::support::text(&output).split_whitespace().next().expect("a sum").to_owned()
}

fn all_sums(cx: &mut Cx, fs: &Xfs) -> Said {
    let mut found = Said::new();
    sums(cx, fs, fs.root(), ".", &mut found);
    found
}

/// Used, soft and hard of each id, as xfs_quota has them: KiB, inodes, KiB of the section.
fn accounts(cx: &mut Cx, fs: &Xfs) -> Said {
    let mut found = Said::new();
    for (kind, letter) in [(Kind::User, 'u'), (Kind::Group, 'g'), (Kind::Project, 'p')] {
        for account in fs.report(cx, kind).expect("a report") {
            let (id, entry) = (account.id, account.entry);
            let (space, realtime) = (entry.space / 1024, entry.realtime / 1024);
            for (what, line) in [
                ('b', [space, entry.block_soft, entry.block_hard]),
                ('i', [entry.inodes, entry.inode_soft, entry.inode_hard]),
                ('r', [realtime, entry.realtime_soft, entry.realtime_hard]),
            ] {
                let line = line.map(|number| number.to_string()).join(" ");
                found.insert(format!("{letter} {what} #{id}"), line);
            }
        }
    }
    // xfs_quota shows nobody who uses and may use nothing, save id 0.
    let all = found.clone();
    found.retain(|key, _| {
        let (kind, id) = (&key[..1], key.rsplit(' ').next().expect("an id"));
        let none = |what: &str| all[&format!("{kind} {what} {id}")] == "0 0 0";
        id == "#0" || !["b", "i", "r"].into_iter().all(none)
    });
    found
}

/// Lines of the guest that begin so, by `keys` words, with `values` words behind.
fn said(text: &str, who: &str, index: usize, keys: usize, values: usize) -> Said {
    let prefix = format!("{who} {index} ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let pair = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take(keys + values).collect();
        let at = keys.min(words.len());
        (words[..at].join(" "), words[at..].join(" "))
    };
    lines.map(pair).collect()
}

/// Files of several owners, some of which share blocks, names that come and go, limits.
fn change(cx: &mut Cx, fs: &Xfs, shares: bool) {
    let root = fs.root();
    let [a, b, full] = ["a", "b", "full"].map(|name| file(cx, fs, root, name));
    let give = |uid, gid| SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    fs.setattr(cx, b, &give(1000, 1001)).expect("chown");
    fs.write(cx, a, 0, &fill(1, 700 * 4096)).expect("write");
    for at in (0..700).step_by(2).map(|block| block * 4096) {
        if shares {
            fs.clone_range(cx, (a, at), (b, at), 4096).expect("clone");
        } else {
            fs.write(cx, b, at, &fill(at, 4096)).expect("write");
        }
    }
    fs.write(cx, a, 10_000, &fill(2, 70_000)).expect("write");
    fs.fallocate(cx, b, FallocMode::PunchHole, 300_000, 600_000).expect("punch");
    // 64 KiB of 64.
    if shares {
        fs.clone_range(cx, (a, 1 << 20), (full, 0), 64 << 10).expect("clone");
    } else {
        fs.write(cx, full, 0, &fill(4, 64 << 10)).expect("write");
    }
    fs.setattr(cx, full, &give(1001, 1001)).expect("chown");
    fs.sync(cx).expect("sync");
    let entry = fs.report(cx, Kind::User).expect("a report");
    let entry = entry.into_iter().find(|account| account.id == 1001).expect("its user").entry;
    let limits = Limits {
        block_hard: entry.space / 1024,
        realtime_hard: entry.realtime / 1024,
        ..Limits::default()
    };
    fs.set_limits(cx, Kind::User, 1001, &limits).expect("limits");
    let grace = Grace { blocks: 2 * 86_400, inodes: 3 * 86_400, realtime: 4 * 86_400 };
    fs.set_grace(cx, Kind::User, grace).expect("grace");
    let dir = mkdir(cx, fs, root, "dir");
    fs.set_project(cx, dir, Project { id: 77, inherit: true }).expect("project");
    for n in 0..120 {
        let ino = file(cx, fs, dir, &format!("f{n}"));
        fs.write(cx, ino, 0, &fill(n, 100 * n as usize)).expect("write");
    }
    for n in (0..120).step_by(3).skip(2) {
        fs.unlink(cx, dir, format!("f{n}").as_bytes()).expect("unlink");
    }
    fs.sync(cx).expect("sync");
}

/// Writes the parts of an image into files.
fn disks(cell: Cell, device: &MemoryDevice, dir: &std::path::Path, index: usize) -> Vec<PathBuf> {
    let image = device.snapshot();
    let (mut paths, mut rest) = (Vec::new(), &image[..]);
    for cut in cell.cuts().into_iter().chain([usize::MAX]) {
        let (part, behind) = rest.split_at(cut.min(rest.len()));
        let path = dir.join(format!("{index}-{}", paths.len()));
        std::fs::write(&path, part).expect("written");
        paths.push(path);
        rest = behind;
    }
    paths
}

/// Goal: a kernel with metadata directories, realtime groups and quota recovers our log, reads our
/// files and accounts, and keeps our limits; we recover its log, and read what it wrote. Method:
/// sums of all files and all accounts are compared in both directions, by our report and
/// xfs_quota; afterwards our check and the newest xfs_repair find nothing.
#[test]
fn logs_are_recovered_in_turns_with_a_kernel_in_a_guest() {
    if !guest::is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut ours, mut paths, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for (index, cell) in CELLS.into_iter().enumerate() {
        let (device, found) = rt::testing::world(move |cx| {
            let device = cell.fresh(cx);
            let fs = cell.mount(cx, &device);
            change(cx, &fs, cell.shares());
            let found = (all_sums(cx, &fs), accounts(cx, &fs));
            let left = loaded(&device.snapshot());
            fs.shutdown_hard();
            (left, found)
        });
        ours.push(found);
        let letter = |at: usize| format!("/dev/vd{}", char::from(b'a' + at as u8));
        let first = paths.len();
        paths.extend(disks(cell, &device, dir.path(), index));
        let second = if paths.len() - first > 1 { letter(first + 1) } else { "none".to_owned() };
        words.push(format!("{index},{},{second},{}", letter(first), cell.shares()));
    }
    let job = JOB.replace("CELLS", &words.join(" "));
    let text = guest::run(&job, &paths).expect("a guest");
    let mut parts = paths.iter();
    for (index, (cell, found)) in CELLS.into_iter().zip(ours).enumerate() {
        let image: Vec<u8> = parts
            .by_ref()
            .take(cell.cuts().len() + 1)
            .flat_map(|path| std::fs::read(path).expect("read"))
            .collect();
        assert!(!text.contains(&format!("REFUSED {index}")), "{cell:?}: {text}");
        assert_eq!(said(&text, "OURS", index, 1, 1), found.0, "{cell:?}: files");
        if cell.counted() {
            assert_eq!(said(&text, "BEFORE", index, 3, 3), found.1, "{cell:?}: accounts");
            let copies = !cell.shares() || text.contains(&format!("COPIES {index}"));
            let full = text.contains(&format!("FULL {index}"));
            assert!(copies && full, "{cell:?}: our limits hold: {text}");
            let grace = text.contains(&format!("GRACE {index} {GRACE}"));
            assert!(grace, "{cell:?}: {text}");
        }
        let (files, theirs) =
            (said(&text, "KERNEL", index, 1, 1), said(&text, "AFTER", index, 3, 3));
        assert!(files.len() > 200, "{cell:?}: {text}");
        rt::testing::world(move |cx| {
            let device = loaded(&image);
            let fs = cell.mount(cx, &device);
            assert!(fs.recovery().is_some(), "{cell:?}: its log was not clean");
            assert_eq!(all_sums(cx, &fs), files, "{cell:?}: files of the kernel");
            if cell.counted() {
                assert_eq!(accounts(cx, &fs), theirs, "{cell:?}: accounts of the kernel");
            }
            fs.unmount(cx).expect("unmount");
            cell.sound(cx, &device);
        });
    }
}

/// What the guest does with a disk whose file system grew while we had it mounted.
const GROWN: &str = r#"modprobe xfs
sums() { find . -type f | xargs md5sum | while read sum f; do echo $1 $n $f $sum; done; }
n=0
for disk in DISKS; do
  mount /dev/vd$disk /mnt || { echo REFUSED $n; continue; }
  cd /mnt
  sums OURS
  count='s/^data .* blocks=\([0-9]*\),.*/\1/p'
  size() { echo $1 $n $(xfs_spaceman -c info /mnt | sed -n "$count"); }
  size BLOCKS
  for name in one two three; do head -c 13000000 /dev/urandom >$name; done
  xfs_growfs -d /mnt >/dev/null || echo FAILED $n
  size GREW
  sync; sums KERNEL; cd /; umount /mnt
  xfs_repair -n /dev/vd$disk >/tmp/said 2>&1 && echo SOUND $n || cat /tmp/said
  n=$((n+1))
done
"#;

/// Goal: the newest kernel recovers a growth that we did while mounted, uses what came, and grows
/// on; we read what it wrote there. Method: the power fails after the growth and later writes; sums
/// of all files; xfs_repair -n in the guest and ours.
#[test]
fn a_growth_of_ours_is_taken_by_a_kernel_in_a_guest() {
    if !guest::is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cells = [grow::SMALL, grow::NEWEST];
    let (mut ours, mut paths) = (Vec::new(), Vec::new());
    for (index, cell) in cells.into_iter().enumerate() {
        let (image, found) = rt::testing::world(move |cx| {
            let device = cell.fresh(cx, grow::DEVICE);
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            crate::resize::write_files(cx, &fs, 0..50).expect("files");
            let blocks = grow::blocks(&fs, 100 << 10);
            fs.grow(cx, blocks).expect("grown");
            crate::resize::write_files(cx, &fs, 50..400).expect("files");
            fs.sync(cx).expect("sync");
            let found = (all_sums(cx, &fs), fs.geometry().blocks_count());
            let image = device.snapshot();
            fs.shutdown_hard();
            (image, found)
        });
        ours.push(found);
        let path = dir.path().join(index.to_string());
        std::fs::write(&path, image).expect("written");
        paths.push(path);
    }
    let text = guest::run(&GROWN.replace("DISKS", "a b"), &paths).expect("a guest");
    for (index, ((cell, path), (files, blocks))) in cells.iter().zip(&paths).zip(ours).enumerate() {
        assert_eq!(said(&text, "OURS", index, 1, 1), files, "{cell:?}: files");
        assert!(text.contains(&format!("BLOCKS {index} {blocks}\n")), "{cell:?}: {text}");
        assert!(text.contains(&format!("SOUND {index}\n")), "{cell:?}: {text}");
        let (grew, theirs) = (said(&text, "GREW", index, 0, 1), said(&text, "KERNEL", index, 1, 1));
        rt::testing::world(|cx| {
            let device = loaded(&std::fs::read(path).expect("read"));
            let fs = cell.mount(cx, device.clone(), 8 << 20);
            assert_eq!(grew[""], fs.geometry().blocks_count().to_string(), "{cell:?}: {text}");
            assert!(fs.geometry().blocks_count() > blocks, "{cell:?}: it grew on");
            assert_eq!(all_sums(cx, &fs), theirs, "{cell:?}: files of the kernel");
            fs.unmount(cx).expect("unmount");
            crate::resize::sound(cx, &device, "after the guest");
        });
    }
}

/// Files in all parts of a section of many groups.
const MANY_GROUPS: &str = "modprobe xfs
sums() { find . -type f | xargs md5sum | while read sum f; do echo $1 $n $f $sum; done; }
n=0
for pair in PAIRS; do
  data=${pair%,*}; rest=${pair#*,}
  mount -o rtdev=$rest $data /mnt || { echo REFUSED $n; continue; }
  cd /mnt
  echo GROUPS $n $(xfs_spaceman -c info /mnt | sed -n 's/.*rgcount=\\([0-9]*\\).*/\\1/p')
  mkdir dir; i=0
  while [ $i -lt 60 ]; do
    head -c $((i * 9000 + 1)) /dev/urandom >dir/f$i; i=$((i+1))
  done
  i=0; while [ $i -lt 60 ]; do rm dir/f$i; i=$((i+3)); done
  # As much as a third of the groups.
  xfs_io -f -c \"falloc 0 ${third}m\" big
  xfs_io -c 'pwrite -q -S 0x41 0 1m' -c \"pwrite -q -S 0x42 $((third-1))m 1m\" big
  cp --reflink=always dir/f59 clone; sync
  rm big; sums KERNEL; cd /; umount /mnt
  xfs_repair -n -r $rest $data >/tmp/said 2>&1 && echo SOUND $n || cat /tmp/said
  n=$((n+1))
done
";

/// Goal: the newest kernel mounts what we make with several hundred realtime groups, gives out
/// their space and takes it back; we read what it wrote, and write. Method: sums of all files;
/// xfs_repair -n in the guest; our check and xfs_repair afterwards.
#[test]
fn hundreds_of_realtime_groups_are_taken_by_a_kernel_in_a_guest() {
    const MIB: u64 = 5 << 10;
    if !guest::is_there() {
        return;
    }
    let cells = [("-d rtinherit=1", 400), ("-d rtinherit=1 -b size=1024", 900)];
    let made: Vec<_> = cells
        .iter()
        .map(|&(words, groups)| {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let paths = crate::mkfs::with_groups(dir.path(), words, MIB, groups);
            (dir, paths)
        })
        .collect();
    let paths: Vec<PathBuf> = made.iter().flat_map(|(_, paths)| paths.clone()).collect();
    let job = MANY_GROUPS.replace("PAIRS", "/dev/vda,/dev/vdb /dev/vdc,/dev/vdd");
    let text = guest::run(&format!("third={}\n{job}", MIB / 3), &paths).expect("a guest");
    for (index, ((_, groups), (_, [image, section]))) in cells.iter().zip(&made).enumerate() {
        assert!(text.contains(&format!("GROUPS {index} {groups}\n")), "{text}");
        assert!(text.contains(&format!("SOUND {index}\n")), "{text}");
        let files = said(&text, "KERNEL", index, 1, 1);
        assert_eq!(files.len(), 41, "{text}");
        crate::log_common::real(|cx| {
            let beside = crate::log_common::Volume::queue_of(cx, section);
            let realtime = Some(xfs::mount::options::BesideDevice(beside));
            let options = MountOptions { read_only: false, realtime, ..MountOptions::default() };
            let fs = crate::log_common::mount_with(cx, image, options);
            assert_eq!(all_sums(cx, &fs), files, "files of the kernel");
            let ino = file(cx, &fs, fs.root(), "ours");
            fs.write(cx, ino, 0, &fill(1, 3 << 20)).expect("written");
            fs.unmount(cx).expect("unmount");
        });
        let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"-n", &"-r", section, image];
        testkit::newest::run_ok("xfs_repair", &args);
    }
}
