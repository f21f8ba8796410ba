//! Mutated images: the check never panics and never hangs, and agrees with e2fsck.
//!
//! `IOPATH_SEEDS=n` runs n seeds in place of the few of an ordinary run.

use crate::common::image::Image;
use crate::common::{Scratch, e2fsck};
use base::rng::Rng;
use ext4::check::{CheckOptions, Severity};
use testkit::judge::LoopMount;

fn seeds(few: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("IOPATH_SEEDS").ok().and_then(|text| text.parse().ok());
    0..asked.unwrap_or(few)
}

/// A small image with one of everything.
fn base(scratch: &Scratch, args: &[&str]) -> Image {
    let mut all = vec!["-b", "1024", "-N", "4096", "-U", "11223344-5566-4788-89aa-bbccddeeff01"];
    all.extend_from_slice(&["-E", "hash_seed=11223344-5566-4788-89aa-0123456789ab"]);
    all.extend_from_slice(args);
    let path = scratch.mke2fs("base", &all, "12M");
    let mount = LoopMount::new(&path, "ext4", "rw").expect("the kernel mounts it");
    crate::common::populate(&mount.path());
    drop(mount);
    Image::open(&path)
}

/// The blocks that hold metadata: what a mutation should hit.
fn metadata(image: &mut Image) -> Vec<u64> {
    let g = image.g.clone();
    let mut list = Vec::new();
    for group in 0..g.groups_count {
        let first = g.group_first_block(group);
        if g.has_super(group) {
            list.extend(first..first + 1 + u64::from(g.desc_blocks));
        }
        let desc = image.desc(group);
        list.extend([desc.block_bitmap, desc.inode_bitmap]);
        list.extend(desc.inode_table..desc.inode_table + 8);
    }
    for path in ["", "big", "deep", "deep/er", "sparse"] {
        let ino = image.ino(path);
        if path != "sparse" {
            list.extend(image.blocks(ino).into_iter().take(20));
        }
        let values = image.inode(ino);
        if values.file_acl != 0 {
            list.push(values.file_acl);
        }
    }
    let lonely = image.ino("lonely");
    list.push(image.inode(lonely).file_acl);
    if g.journal_ino != 0 {
        list.push(image.blocks(g.journal_ino)[0]);
    }
    if g.features.incompat.contains(ext4::format::features::Incompat::EXTENTS) {
        let sparse = image.ino("sparse");
        list.push(image.extent_block(sparse));
    }
    list
}

/// One mutation of a few bytes: a flipped bit, a byte of special value, a copied or zeroed piece.
fn mutate(image: &mut Image, blocks: &[u64], rng: &mut Rng) {
    let block = blocks[rng.below(blocks.len() as u64) as usize];
    let other = blocks[rng.below(blocks.len() as u64) as usize];
    let source = image.block(other).to_vec();
    let data = image.block(block);
    let len = data.len();
    let at = rng.below(len as u64 - 16) as usize;
    match rng.below(6) {
        0 | 1 => data[at] ^= 1 << rng.below(8),
        2 => data[at] = [0, 0xff, 0x7f, 0x80][rng.below(4) as usize],
        3 => data[at & !3..][..4].copy_from_slice(&rng.next_u32().to_le_bytes()),
        4 => data[at..at + 16].copy_from_slice(&source[at..at + 16]),
        _ => data[at..at + 8].fill(0),
    }
}

/// Sets the checksums of superblock, descriptors and bitmaps again, so that a mutation gets past
/// the checksums to the checks behind them.
fn repair_checksums(image: &mut Image) {
    if !image.g.checksums.metadata {
        return;
    }
    image.edit_super(|_| ());
    let g = image.g.clone();
    for group in 0..g.groups_count {
        image.edit_desc(group, |_| ());
    }
    // A mutated descriptor may name a table that lies nowhere.
    let table = image.desc(0).inode_table;
    if table + u64::from(g.itable_blocks) <= g.blocks_count {
        for ino in 1..200 {
            image.edit_slot(ino, |_| ());
        }
    }
}

/// Goal: no image makes the check panic or run away, and what is found does not depend on the
/// number of tasks. Method: mutate metadata by seed, with and without checksums behind which the
/// mutation hides.
#[test]
fn mutated_images_never_panic_the_check() {
    let scratch = Scratch::new();
    let variants: [&[&str]; 3] = [
        &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"],
        &["-t", "ext4", "-O", "^metadata_csum"],
        &["-t", "ext2"],
    ];
    let options =
        |tasks| CheckOptions { findings_max: 100, tasks: Some(tasks), ..CheckOptions::default() };
    let mut images: Vec<(Image, Vec<u64>)> = Vec::new();
    for args in variants {
        let mut image = base(&scratch, args);
        let blocks = metadata(&mut image);
        let report = image.check_with(&options(4));
        assert!(report.is_clean(), "{:?}", report.findings);
        images.push((image, blocks));
    }
    for seed in seeds(300) {
        let mut rng = Rng::new(seed, 1);
        let (image, blocks) = &images[(seed % 3) as usize];
        let mut image = image.clone();
        for _ in 0..1 + rng.below(20) {
            mutate(&mut image, blocks, &mut rng);
        }
        if rng.chance(0.5) {
            repair_checksums(&mut image);
        }
        println!("seed {seed}: IOPATH_SEEDS={} replays it", seed + 1);
        let report = image.check_with(&options(1));
        assert!(report.findings.len() <= 100);
        assert_eq!(image.check_with(&options(4)), report, "four tasks find something else");
    }
}

/// Goal: a check reports how far it has come: never less than before, at the end all of it. Method:
/// one task, and several at once, in an image with many directories.
#[test]
fn a_check_reports_how_far_it_has_come() {
    let scratch = Scratch::new();
    let image = base(&scratch, &["-t", "ext4"]);
    for tasks in [1, 4] {
        let (meter, steps) = testkit::steps::recorded();
        let tasks = Some(tasks);
        let report = image.check_with(&CheckOptions { meter, tasks, ..CheckOptions::default() });
        assert!(report.is_clean(), "{:?}", report.findings);
        steps.assert_whole(&["inodes", "directories", "bitmaps"]);
    }
}

/// Goal: our verdict is e2fsck's. Method: one mutation at a time; print how often both call the
/// image sound or both call it broken.
#[test]
fn verdicts_agree_with_e2fsck() {
    let scratch = Scratch::new();
    let mut images: Vec<(Image, Vec<u64>)> = Vec::new();
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum"], &["-t", "ext2"]] {
        let mut image = base(&scratch, args);
        let blocks = metadata(&mut image);
        images.push((image, blocks));
    }
    let path = scratch.path("mutated");
    let (mut agree, mut all, mut lenient, mut strict) = (0, 0, Vec::new(), Vec::new());
    for seed in seeds(150) {
        let mut rng = Rng::new(seed, 2);
        let (image, blocks) = &images[(seed % 3) as usize];
        let mut image = image.clone();
        mutate(&mut image, blocks, &mut rng);
        let report = image.check();
        let ours = report.findings.iter().any(|found| found.rule.severity() == Severity::Error);
        image.write(&path);
        let (code, text) = e2fsck(&path);
        let theirs = code != 0 || text.contains("? no");
        all += 1;
        agree += u64::from(ours == theirs);
        if ours && !theirs {
            strict.push(format!("seed {seed}: {}", report.findings[0]));
        }
        if theirs && !ours {
            let line = text.lines().find(|line| line.contains("? no") || line.contains("should"));
            lenient.push(format!("seed {seed}: {}", line.unwrap_or(text.trim())));
        }
    }
    println!("{agree} of {all} verdicts agree");
    println!("only ours complains: {strict:#?}\nonly e2fsck complains: {lenient:#?}");
    assert!(agree * 100 >= all * 90, "{agree} of {all}: {strict:#?} {lenient:#?}");
}
