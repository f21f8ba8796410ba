//! Every rule of the check has an image with that one defect, which gives that one finding; and
//! e2fsck complains as well, or the table says why not.

use std::collections::BTreeSet;

use crate::common::image::Image;
use crate::common::{Scratch, e2fsck};
use crate::defects::{Base, Defect};
use ext4::check::Rule;
use testkit::judge::{self, LoopMount};

/// Makes a base image and lets the kernel fill it. Identifiers are fixed, so that names have the
/// same hashes in every run.
fn base(scratch: &Scratch, base: Base) -> Image {
    let uuid = "11223344-5566-4788-89aa-bbccddeeff01";
    let mut args =
        vec!["-b", "1024", "-U", uuid, "-E", "hash_seed=11223344-5566-4788-89aa-0123456789ab"];
    args.extend_from_slice(match base {
        Base::Ext4 => &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"],
        Base::Ext2 => &["-t", "ext2"],
        Base::Quota => &["-t", "ext4", "-O", "quota"],
        Base::Values => &["-t", "ext4", "-O", "ea_inode"],
        Base::Inline => &["-t", "ext4", "-O", "inline_data"],
        Base::Encrypt => &["-t", "ext4", "-b", "4096", "-O", "encrypt"],
        Base::Mmp => &["-t", "ext4", "-O", "mmp"],
    });
    let path = scratch.mke2fs("base", &args, "32M");
    if base == Base::Quota {
        // Not every kernel mounts these for writing.
        return Image::open(&path);
    }
    let mount = LoopMount::new(&path, "ext4", "rw").expect("the kernel mounts it");
    crate::common::populate(&mount.path());
    if base == Base::Values {
        let set = format!("setfattr -n user.large -v $(seq 1 2000 | tr '\\n' x) {}", "lonely");
        judge::run_ok("sh", &[&"-c", &format!("cd {} && {set}", mount.path().display())]);
    }
    if base == Base::Encrypt {
        let key = "printf %064d 7 | xfs_io -c add_enckey . | grep -o '[0-9a-f]\\{32\\}'";
        let script = format!(
            "mkdir secret && key=$({key}) && xfs_io -c \"set_encpolicy -v 2 $key\" secret && \
             echo x > secret/file"
        );
        judge::run_ok("sh", &[&"-c", &format!("cd {} && {script}", mount.path().display())]);
    }
    drop(mount);
    Image::open(&path)
}

#[test]
fn one_defect_gives_one_finding_and_e2fsck_agrees() {
    let scratch = Scratch::new();
    let all =
        [Base::Ext4, Base::Ext2, Base::Quota, Base::Values, Base::Inline, Base::Encrypt, Base::Mmp];
    let [ext4, ext2, quota, values, inline, encrypt, mmp] = all.map(|which| base(&scratch, which));
    let path = scratch.path("broken");
    let mut wrong = Vec::new();
    for Defect { rule, base, silent, make } in crate::defects::all() {
        let mut image = match base {
            Base::Ext4 => ext4.clone(),
            Base::Ext2 => ext2.clone(),
            Base::Quota => quota.clone(),
            Base::Values => values.clone(),
            Base::Inline => inline.clone(),
            Base::Encrypt => encrypt.clone(),
            Base::Mmp => mmp.clone(),
        };
        make(&mut image);
        let report = image.check();
        let found: Vec<Rule> = report.findings.iter().map(|finding| finding.rule).collect();
        if found != [rule] {
            let list: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
            wrong.push(format!("{rule}: found {list:#?}"));
        }
        image.write(&path);
        let (code, text) = e2fsck(&path);
        // e2fsck -n exits with 0 after some of its questions.
        let complains = code != 0 || text.contains("? no") || text.contains("Warning");
        if complains == silent.is_some() {
            let last: Vec<&str> = text.lines().take(12).collect();
            wrong.push(format!("{rule}: e2fsck exits with {code}: {}", last.join("\n  ")));
        }
    }
    let covered: BTreeSet<Rule> = crate::defects::all().iter().map(|defect| defect.rule).collect();
    for &rule in Rule::ALL.iter().filter(|rule| !covered.contains(rule)) {
        wrong.push(format!("{rule}: no defect"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
