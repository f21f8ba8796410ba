//! Random operations from one and from many tasks, beside the reference file system, with remounts,
//! in virtual time: a hundred seeds here, thousands with `IOPATH_SEEDS=n`. After every unmount
//! our check and `e2fsck -fn` judge the image.

use crate::support::*;
use jbd2::JournalMode;
use rt::Cx;
use testkit::memfs::Limits;
use testkit::model::{Config, check_seeds};
use testkit::trials::Modelled;

const CELLS: &[Cell] = &[
    Cell::new("ext4", 4096),
    Cell::new("ext4", 1024),
    Cell::new("ext4", 2048).journal(1024),
    Cell::new("ext4", 1024).journal(1024),
    Cell::new("ext4", 4096).features("^has_journal"),
    Cell::new("ext4", 1024).mke2fs(),
    Cell::new("ext4", 4096).features("quota,project"),
    Cell::new("ext4", 1024).features("quota,orphan_file").journal(2048).mke2fs(),
    Cell::new("ext4", 4096).features("^metadata_csum,^64bit,^orphan_file").mke2fs(),
    Cell::new("ext3", 1024),
    Cell::new("ext3", 4096),
    Cell::new("ext3", 2048).mke2fs(),
    Cell::new("ext2", 1024),
    Cell::new("ext2", 4096),
];

/// Those whose data may go through the journal; small ones, so that they fill.
const JOURNALED: &[Cell] = &[
    Cell::new("ext4", 4096).journal(1024),
    Cell::new("ext4", 1024).journal(2048),
    Cell::new("ext3", 1024).journal(1024),
    Cell::new("ext4", 2048),
    Cell::new("ext4", 4096).features("^metadata_csum,^64bit,^orphan_file").mke2fs(),
    Cell::new("ext3", 4096).mke2fs(),
];

/// Those whose attributes may be larger than a block.
const LARGE_VALUES: &[Cell] = &[
    Cell::new("ext4", 4096).features("ea_inode"),
    Cell::new("ext4", 1024).features("ea_inode,quota,project").journal(2048),
    Cell::new("ext4", 2048).features("ea_inode,^has_journal"),
    Cell::new("ext4", 1024).features("ea_inode,^metadata_csum,^64bit,^orphan_file").mke2fs(),
    Cell::new("ext3", 1024).features("ea_inode").journal(1024),
];

/// Those whose small files and directories lie in their inodes.
const INLINE: &[Cell] = &[
    Cell::new("ext4", 4096).features("inline_data"),
    Cell::new("ext4", 1024).features("inline_data,^metadata_csum,^dir_index").mke2fs(),
    Cell::new("ext4", 1024).features("inline_data,quota,ea_inode").journal(2048),
    Cell::new("ext4", 2048).features("inline_data,^has_journal,^extent"),
];

/// Those whose unit of allocation is a cluster of blocks.
const CLUSTERS: &[Cell] = &[
    Cell::new("ext4", 4096).clusters(16),
    Cell::new("ext4", 1024).clusters(2).journal(1024),
    Cell::new("ext4", 1024).clusters(64).journal(1024),
    Cell::new("ext4", 2048).features("bigalloc,quota,project,inline_data"),
    Cell::new("ext4", 4096).clusters(4).mke2fs(),
];

/// Those with blocks that are larger than a page.
const LARGE_BLOCKS: &[Cell] = &[
    Cell::new("ext4", 65536),
    Cell::new("ext4", 8192).features("orphan_file"),
    Cell::new("ext4", 32768).features("inline_data,quota,project"),
    Cell::new("ext3", 16384),
    Cell::new("ext4", 65536).features("^metadata_csum,^64bit,ea_inode"),
    Cell::new("ext4", 16384).mke2fs(),
];

/// Those whose directories ignore case.
const FOLDING: &[Cell] = &[
    Cell::new("ext4", 1024).features("casefold,inline_data,bigalloc").journal(1024),
    Cell::new("ext4", 4096).features("casefold,verity,quota,orphan_file"),
    Cell::new("ext4", 2048).features("casefold,^has_journal,^dir_index"),
];

fn choose(cells: &[Cell], seed: u64) -> Cell {
    cells[(seed % cells.len() as u64) as usize]
}

/// The seed chooses the cell and the size of the cache.
fn subject(cx: &mut Cx, seed: u64) -> Modelled<InMode> {
    make(cx, seed, choose(CELLS, seed), JournalMode::Ordered)
}

fn journaled(cx: &mut Cx, seed: u64) -> Modelled<InMode> {
    make(cx, seed, choose(JOURNALED, seed), JournalMode::Data)
}

fn make(cx: &mut Cx, seed: u64, cell: Cell, mode: JournalMode) -> Modelled<InMode> {
    Modelled::new(cx, 48 << 20, InMode(cell, mode), seed)
}

fn large_values(cx: &mut Cx, seed: u64) -> Modelled<InMode> {
    make(cx, seed, choose(LARGE_VALUES, seed), JournalMode::Ordered)
}

fn inline(cx: &mut Cx, seed: u64) -> Modelled<InMode> {
    let cell = choose(INLINE, seed);
    let journaled = seed % 12 >= 8 && !cell.features.contains("^has_journal");
    let mode = if journaled { JournalMode::Data } else { JournalMode::Ordered };
    make(cx, seed, cell, mode)
}

fn large_blocks(cx: &mut Cx, seed: u64) -> Modelled<InMode> {
    let cell = InMode(choose(LARGE_BLOCKS, seed), JournalMode::Ordered);
    Modelled::new(cx, 192 << 20, cell, seed)
}

fn folding(cx: &mut Cx, seed: u64) -> Modelled<InMode> {
    make(cx, seed, choose(FOLDING, seed), JournalMode::Ordered)
}

fn clusters(cx: &mut Cx, seed: u64) -> Modelled<InMode> {
    let mode = if seed % 3 == 2 { JournalMode::Data } else { JournalMode::Ordered };
    make(cx, seed, choose(CLUSTERS, seed), mode)
}

/// What the format of a cell allows.
fn limits(cell: Cell) -> Limits {
    let block = u64::from(cell.block);
    let pointers = block / 4;
    let mapped = (12 + pointers + pointers.pow(2) + pointers.pow(3)) * block;
    // Without huge_file, i_blocks counts sectors in 32 bits, those of the map included.
    let all = u64::from(u32::MAX) / (block / 512);
    let leaves = all.div_ceil(pointers);
    let counted = (all - leaves - leaves.div_ceil(pointers) - 1) * block;
    let (size_max, links_max) = match cell.kind {
        "ext4" => (u64::from(u32::MAX) * block, 65_000),
        _ => (mapped.min(counted), 32_000),
    };
    let (block_size, target_max) = (u64::from(cell.block), cell.block.min(4096) as usize - 1);
    Limits { size_max, links_max, target_max, block_size, ..Limits::default() }
}

/// One task, or many, on the cells; `check_seeds` needs the limits before there is a subject.
fn config(cells: &'static [Cell], many: bool) -> impl Fn(u64) -> Config {
    move |seed| {
        let config = if many { Config::many(seed) } else { Config::new(seed) };
        Config { limits: limits(choose(cells, seed)), ..config }
    }
}

#[test]
fn one_task_agrees_with_the_reference() {
    check_seeds(0, seed_count(60), config(CELLS, false), subject);
}

#[test]
fn many_tasks_agree_with_the_reference() {
    check_seeds(1000, seed_count(40), config(CELLS, true), subject);
}

#[test]
fn one_task_agrees_with_data_in_the_journal() {
    check_seeds(2000, seed_count(30), config(JOURNALED, false), journaled);
}

#[test]
fn many_tasks_agree_with_data_in_the_journal() {
    check_seeds(3000, seed_count(30), config(JOURNALED, true), journaled);
}

#[test]
fn attributes_of_all_sizes_agree_with_the_reference() {
    let large = |many| {
        let config = config(LARGE_VALUES, many);
        move |seed| Config { xattr_max: 70_000, ..config(seed) }
    };
    check_seeds(4000, seed_count(10), large(false), large_values);
    check_seeds(5000, seed_count(10), large(true), large_values);
}

#[test]
fn content_in_inodes_agrees_with_the_reference() {
    check_seeds(6000, seed_count(16), config(INLINE, false), inline);
    check_seeds(7000, seed_count(8), config(INLINE, true), inline);
}

#[test]
fn clusters_agree_with_the_reference() {
    check_seeds(8000, seed_count(5), config(CLUSTERS, false), clusters);
    check_seeds(9000, seed_count(3), config(CLUSTERS, true), clusters);
}

#[test]
fn large_blocks_agree_with_the_reference() {
    check_seeds(10_000, seed_count(6), config(LARGE_BLOCKS, false), large_blocks);
    check_seeds(11_000, seed_count(2), config(LARGE_BLOCKS, true), large_blocks);
}

#[test]
fn directories_that_ignore_case_agree_with_the_reference() {
    check_seeds(12_000, seed_count(3), config(FOLDING, false), folding);
    check_seeds(13_000, seed_count(2), config(FOLDING, true), folding);
}
