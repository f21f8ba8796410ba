//! The check on images with a dirty journal: replayed in memory, and the image stays as it is.

use crate::common::Scratch;
use crate::common::image::Image;
use ext4::check::{CheckOptions, Rule, Severity};
use testkit::judge::LoopMount;

/// Goal: a dirty image is checked as a mount would leave it, without a write. Method: copy the
/// backing file of a mounted kernel file system in the middle of its work.
#[test]
fn dirty_images_of_the_kernel_are_checked_after_a_replay_in_memory() {
    let scratch = Scratch::new();
    for args in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-O", "^metadata_csum"]] {
        let path = scratch.mke2fs("live", args, "32M");
        let mount = LoopMount::new(&path, "ext4", "rw,data=journal").expect("the kernel mounts it");
        let dir = mount.path();
        for index in 0..400 {
            let sub = dir.join(format!("d{}", index % 7));
            std::fs::create_dir_all(&sub).expect("a directory");
            std::fs::write(sub.join(format!("f{index}")), vec![1; 3000]).expect("a file");
            if index % 3 == 0 {
                std::fs::remove_file(sub.join(format!("f{index}"))).expect("a file");
            }
        }
        // An fsync commits; the blocks stay in the log until a checkpoint.
        let file = std::fs::File::create(dir.join("last")).expect("a file");
        file.sync_all().expect("a sync");
        let copy = scratch.path("copy");
        std::fs::copy(&path, &copy).expect("a copy");
        drop((file, mount));
        let image = Image::open(&copy);
        let report = image.check();
        let rules: Vec<Rule> = report.findings.iter().map(|found| found.rule).collect();
        assert!(rules.contains(&Rule::JournalNeedsRecovery), "{args:?}: {:#?}", report.findings);
        let broken: Vec<String> = report
            .findings
            .iter()
            .filter(|found| found.rule.severity() == Severity::Error)
            .map(ToString::to_string)
            .collect();
        assert!(broken.is_empty(), "{args:?}: {broken:#?}");
        assert!(report.inodes_used > 270, "{report:?}");
        let options = CheckOptions { replay: false, ..CheckOptions::default() };
        let report = image.check_with(&options);
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        assert!(report.is_clean(), "a note: the next mount replays it");
    }
}
