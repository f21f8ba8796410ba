//! Quota files in the root directory, as quotacheck(8) of Debian's `quota` makes them and
//! repquota(8) shows them.

use std::path::Path;
use std::sync::Arc;

use crate::support::*;
use base::{Errno, Rng};
use device::{Cut, MemoryDevice, RecordDevice};
use ext4::format::quota::{Form, Kind};
use ext4::quota::Limits;
use ext4::{Ext4, MountError, MountOptions, QuotaName};
use rt::{Cred, Cx};
use testkit::judge::{self, LoopMount};
use vfs::{FileSystem, FileType, NewNode, SetAttr};

const KINDS: [Kind; 2] = [Kind::User, Kind::Group];

fn name(form: Form) -> &'static str {
    if form == Form::V0 { "vfsv0" } else { "vfsv1" }
}

fn options(form: Option<Form>) -> MountOptions {
    let quota_files = QuotaName::USUAL.map(QuotaName::new);
    MountOptions { quota_files, quota_form: form, ..MountOptions::default() }
}

/// An image with files of three users, counted by quotacheck, and limits of setquota.
fn image(form: Form, features: &str) -> Arc<MemoryDevice> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    judge::mke2fs(file.path(), 32 << 20, &["-t", "ext4", "-b", "1024", "-O", features]);
    let kernel = LoopMount::new(file.path(), "ext4", "usrquota,grpquota").expect("mounted");
    recovered::shell(
        &kernel.path(),
        &format!(
            "for n in 1 2 3; do
                 mkdir d$n; head -c ${{n}}0000 /dev/zero >d$n/f; chown 100$n:10$n d$n/f
             done; sync; quotacheck -F {0} -ugcm . 2>/dev/null
             setquota -F {0} -u 1001 100 200 5 7 .; setquota -F {0} -g 102 0 300 0 0 .",
            name(form)
        ),
    );
    drop(kernel);
    let device = MemoryDevice::new(32 << 20);
    device.load(&testkit::image::read(file.path()));
    Arc::new(device)
}

/// What repquota shows of both files, with ids as numbers; after counting again, too.
fn shown(path: &Path, form: Form, count: bool) -> String {
    let kernel = LoopMount::new(path, "ext4", "usrquota,grpquota").expect("the kernel mounts it");
    let form = name(form);
    if count {
        judge::run_ok("quotacheck", &[&"-F", &form, &"-ugm", &kernel.path()]);
    }
    let report = ["-unv", "-gnv"].map(|kind| {
        let said = judge::run_ok("repquota", &[&kind, &"-F", &form, &kernel.path()]);
        let lines = said.lines().filter(|line| line.starts_with('#'));
        let mut lines: Vec<&str> = lines.map(str::trim_end).collect();
        // In the order of the entries in the file.
        lines.sort_unstable();
        lines.join("\n")
    });
    report.join("\n\n")
}

fn accounts(cx: &mut Cx, fs: &Ext4, kind: Kind) -> Vec<(u32, u64, u64)> {
    let list = fs.quota_report(cx, kind).expect("a report").into_iter();
    let used = list.map(|(id, entry)| (id, entry.space, entry.inodes));
    used.filter(|(_, space, inodes)| space | inodes != 0).collect()
}

/// What the files say is what the inodes have.
fn counted(cx: &mut Cx, fs: &Ext4, what: &str) {
    for kind in KINDS {
        let counted = fs.quota_count(cx, kind).expect("counted").into_iter();
        let counted: Vec<_> = counted.map(|(id, (space, inodes))| (id, space, inodes)).collect();
        assert_eq!(accounts(cx, fs, kind), counted, "{what}: {kind:?}");
    }
}

/// Files and owners come and go.
fn work(cx: &mut Cx, fs: &Ext4, rng: &mut Rng, steps: u32) {
    let root = fs.root();
    for step in 0..steps {
        let id = 1000 + rng.below(40) as u32;
        let node = NewNode { uid: id, gid: id % 7, ..NewNode::new(FileType::Regular, 0o644) };
        let made = fs.create(cx, root, format!("n{step}").as_bytes(), &node).expect("a file").ino;
        fs.write(cx, made, 0, &vec![3; rng.below(20_000) as usize]).expect("written");
        if step % 3 == 1 {
            let set = SetAttr { uid: Some(id + 1), gid: Some(9), ..SetAttr::default() };
            fs.setattr(cx, made, &set).expect("chown");
        }
        if step % 4 == 3 {
            fs.unlink(cx, root, format!("n{}", step - 2).as_bytes()).expect("unlink");
        }
        if step % 5 == 0 {
            fs.fsync(cx, made, false).expect("fsync");
        }
    }
}

/// Goal: both forms are read, and kept right while we write, and limits hold; Debian's tools see
/// the same usage, limits and grace as we, and count the same. Method: quotacheck and setquota
/// make the files, our mount works, repquota before and after quotacheck.
#[test]
fn old_files_are_kept_right() {
    for (form, features) in [(Form::V0, "^fast_commit"), (Form::V1, "fast_commit,metadata_csum")] {
        let what = name(form);
        let device = image(form, features);
        rt::testing::world(|cx| {
            let (fs, _) = try_mount(cx, device.clone(), 8 << 20, options(Some(form))).expect(what);
            counted(cx, &fs, what);
            let of_one = fs.quota_report(cx, Kind::User).expect("a report");
            let (_, entry) = of_one.into_iter().find(|(id, _)| *id == 1001).expect("an entry");
            assert_eq!((entry.block_soft, entry.block_hard, entry.inode_hard), (100, 200, 7));
            work(cx, &fs, &mut Rng::new(5, 6), 60);
            let limits = Limits { block_hard: 500, ..Limits::default() };
            fs.quota_set(cx, Kind::User, 4711, &limits).expect("limits");
            let large = Limits { block_hard: 1 << 40, ..Limits::default() };
            let set = fs.quota_set(cx, Kind::User, 4712, &large);
            assert_eq!(set, if form == Form::V0 { Err(Errno::EOVERFLOW) } else { Ok(()) });
            // Beyond the soft limit, up to the hard one.
            let dir = fs.lookup(cx, fs.root(), b"d1").expect("a directory").ino;
            let file = fs.lookup(cx, dir, b"f").expect("a file").ino;
            let root = cx.set_cred(Cred { uid: 1001, gid: 101, ..Cred::default() });
            fs.write(cx, file, 10_000, &vec![1; 140 << 10]).expect("below the hard limit");
            let part = fs.write(cx, file, 160 << 10, &vec![1; 60 << 10]);
            assert!(part.is_ok_and(|bytes| bytes < 60 << 10), "{what}: as far as it fits");
            let more = fs.write(cx, file, 260 << 10, &[1]);
            assert_eq!(more.err(), Some(Errno::EDQUOT), "{what}");
            cx.set_cred(root);
            fs.sync(cx).expect("sync");
            counted(cx, &fs, what);
            fs.unmount(cx).expect("unmount");
        });
        let file = judged(&device, what);
        let flags = judge::debugfs(file.path(), false, "stat aquota.user");
        assert!(flags.contains("Flags: 0x80000"), "others may change it again: {flags}");
        let before = shown(file.path(), form, false);
        assert!(before.lines().any(|line| line.starts_with("#1001") && line.contains("+-")));
        assert!(before.contains("#4711"), "{before}");
        assert_eq!(before, shown(file.path(), form, true), "{what}: counted by quotacheck");
    }
}

/// Goal: a power cut never parts usage from what causes it. Method: cuts and losses of a run; after
/// our recovery everything is counted.
#[test]
fn cuts_leave_old_files_right() {
    let device = image(Form::V0, "^fast_commit");
    let base = device.fork();
    let record = Arc::new(RecordDevice::new(device.clone()));
    rt::testing::world(|cx| {
        let (fs, _) = try_mount(cx, record.clone(), 8 << 20, options(None)).expect("mounted");
        work(cx, &fs, &mut Rng::new(7, 8), 40);
        fs.unmount(cx).expect("unmount");
    });
    let log = record.take_log();
    let mut rng = Rng::new(1, 3);
    let clean = (0..=log.entries.len()).step_by(7).map(Cut::clean);
    let losses = (0..25).map(|_| log.random_cut(&mut rng)).collect::<Vec<_>>();
    for cut in clean.chain(losses) {
        let cut_off = Arc::new(log.device_after(&base, &cut));
        rt::testing::world(|cx| {
            let mounted = try_mount(cx, cut_off.clone(), 8 << 20, options(None));
            let (fs, _) = mounted.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
            counted(cx, &fs, &format!("{cut:?}"));
            fs.unmount(cx).expect("unmount");
            checked(cx, &cut_off, &format!("{cut:?}"));
        });
    }
}

/// Goal: what was changed by a mount that did not count is counted anew; a file that is not there,
/// or of the other form, is refused by name.
#[test]
fn files_are_counted_anew_and_refused_by_name() {
    let device = image(Form::V1, "^fast_commit");
    rt::testing::world(|cx| {
        let (fs, _) = mount(cx, device.clone());
        work(cx, &fs, &mut Rng::new(9, 9), 20);
        fs.unmount(cx).expect("unmount");
        let (fs, _) = try_mount(cx, device.clone(), 8 << 20, options(None)).expect("mounted");
        let wrong = accounts(cx, &fs, Kind::User);
        for kind in KINDS {
            fs.quota_recount(cx, kind).expect("counted");
        }
        assert_ne!(wrong, accounts(cx, &fs, Kind::User));
        counted(cx, &fs, "anew");
        fs.unmount(cx).expect("unmount");
        let refused = |cx: &mut Cx, options| match try_mount(cx, device.clone(), 8 << 20, options) {
            Err(MountError::QuotaFile(text)) => text,
            other => panic!("{:?}", other.map(|_| ())),
        };
        let text = refused(cx, options(Some(Form::V0)));
        assert!(text.contains("vfsv1"), "{text}");
        let quota_files = [QuotaName::new("nobody"), None];
        let text = refused(cx, MountOptions { quota_files, ..MountOptions::default() });
        assert!(text.contains("nobody") && text.contains("quotacheck"), "{text}");
    });
    let file = judged(&device, "counted anew");
    assert_eq!(shown(file.path(), Form::V1, false), shown(file.path(), Form::V1, true));
}
