//! Which bios a direct call sends, in which order, with which reads of metadata between them: for
//! every rule about boundaries, and every edge of requests and mappings.
//!
//! The map is a table of runs; the device notes what it is told. Each scenario is printed for each
//! rule and compared with the text beside it, so that a change of any rule is a diff of a table.
//! `IOPATH_BLESS=1` takes a deliberate change over.

#[path = "direct/toy.rs"]
mod toy;

use testkit::kept;
use toy::{Toy, run};
use vfs::direct::Boundary;

/// Sixteen-block tables, a metadata block between them: what ext3 looks like, small.
fn marked() -> Toy {
    let mut toy = Toy::new(12);
    toy.run(0, 4, 100).marked().reads(99);
    toy.run(4, 8, 105).marked().reads(104);
    toy.run(12, 4, 114).reads(113);
    toy
}

/// The scenarios: name, map, offset and length of the call, write or read.
fn scenarios() -> Vec<(&'static str, Toy, u64, u64, bool)> {
    let k = 1024;
    let mut all = vec![
        ("three runs, whole", marked(), 0, 64 * k, true),
        ("three runs, whole, read", marked(), 0, 64 * k, false),
        ("the call ends before the marked run does", marked(), 0, 40 * k, true),
        ("the call ends with the marked run", marked(), 0, 48 * k, true),
        ("one marked block", marked(), 12 * k, 4 * k, true),
    ];
    let mut toy = Toy::new(12);
    (0..6).for_each(|n| {
        toy.run(n, 1, 200 + 2 * n).marked();
    });
    all.push(("every mapping is one block", toy, 0, 24 * k, true));
    // Runs shorter than a page: 1 KiB blocks, neighbours on the device or not.
    let mut toy = Toy::new(10);
    toy.run(0, 2, 400);
    toy.run(2, 1, 402).marked().reads(403);
    toy.run(3, 3, 404);
    toy.run(6, 2, 500);
    all.push(("several mappings in a page", toy, 0, 8 * k, true));
    // A run that ends in the middle of a page.
    let mut toy = Toy::new(10);
    toy.run(0, 6, 400).marked().reads(399);
    toy.run(6, 10, 407).reads(406);
    all.push(("a run ends inside a page", toy, 0, 16 * k, true));
    // A run of more bytes than a bio takes: Morton's question.
    let mut toy = Toy::new(12).limit(16 * k as u32);
    toy.run(0, 10, 300).marked().reads(299);
    toy.run(10, 4, 311).reads(310);
    all.push(("a region of more than one bio", toy, 0, 56 * k, true));
    // The bio is full exactly when the piece with the mark comes: the flag of the second patch.
    let mut toy = Toy::new(12).limit(16 * k as u32);
    toy.run(0, 5, 300).marked().reads(299);
    toy.run(5, 4, 305).reads(306);
    all.push(("the bio is full at the boundary", toy, 0, 36 * k, true));
    // The region with the mark does not continue the one before.
    let mut toy = Toy::new(12);
    toy.run(0, 2, 300);
    toy.run(2, 1, 310).marked().reads(309);
    toy.run(3, 3, 311).reads(308);
    all.push(("one marked page elsewhere", toy, 0, 24 * k, true));
    let mut toy = Toy::new(12);
    toy.run(0, 4, 100).marked();
    toy.run(4, 4, 104);
    all.push(("the next run is the neighbour", toy, 0, 32 * k, true));
    // Direct I/O of sectors on blocks of 4 KiB.
    let mut toy = Toy::new(12);
    toy.run(0, 3, 100).fresh();
    all.push(("new blocks, head and tail", toy, 512, 9 * k + 512, true));
    let mut toy = Toy::new(12);
    toy.run(0, 3, 100);
    all.push(("old blocks, head and tail", toy, 512, 9 * k + 512, true));
    let mut toy = Toy::new(12);
    toy.run(0, 1, 100).fresh();
    all.push(("within one new block", toy, k, k, true));
    // Holes.
    let mut toy = Toy::new(12);
    toy.run(0, 2, 100);
    toy.hole(2, 2);
    toy.run(4, 2, 102);
    all.push(("a hole is read as zeros", toy, 0, 24 * k, false));
    let mut toy = Toy::new(12);
    toy.run(0, 2, 100);
    toy.hole(2, 2);
    toy.run(4, 2, 102);
    all.push(("a hole in the middle of a write", toy, 0, 24 * k, true));
    all
}

/// Goal: exactly the bios of each rule. Method: snapshot tables.
#[test]
fn bios_of_every_rule() {
    let mut text = String::new();
    for (name, toy, off, len, write) in scenarios() {
        text += &format!("== {name}\n");
        let line = |rule| run(&toy, rule, off, len, write).line();
        let outcomes = Boundary::ALL.into_iter().map(|rule| (rule.name(), line(rule)));
        text += &kept::by_outcome(outcomes);
    }
    kept::compare(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/direct/bios.txt"), &text);
}

/// Goal: what the thread asks for, rule by rule, in words and not in a table: the boundary block is
/// in the bio that is pushed, no bio is pushed between, and a region of several bios is pushed
/// after the last. This is the test that would have caught both regressions.
#[test]
fn a_marked_region_is_cut_by_the_limit_alone() {
    let pages = 64u64;
    let mut toy = Toy::new(12).limit(64 << 10);
    toy.run(0, pages, 1000).marked().reads(999);
    toy.run(pages, 4, 1000 + pages + 1).reads(1000 + pages);
    let bytes = (pages + 4) * 4096;
    let count = |rule| {
        let log = run(&toy, rule, 0, bytes, true);
        let first = log.bios_before_read(1000 + pages);
        (first.len() as u64, first.iter().map(|bio| bio.1).sum::<u64>() / 4096)
    };
    // 2.6.19: a page a bio, and the last two pages are not on their way when the metadata is read.
    assert_eq!(count(Boundary::EveryPiece), (pages - 2, pages - 2));
    // The first patch: as many bios as the limit says, but the boundary block comes after the read.
    let full = pages * 4096 / (64 << 10);
    assert_eq!(count(Boundary::FirstPiece), (full - 1, pages - 16));
    // The second patch and what was shipped: all of the region, its last block in its last bio.
    for rule in [Boundary::LastPiece, Boundary::AfterAdd] {
        assert_eq!(count(rule), (full, pages), "{rule}");
    }
    // Ours waits for nothing: the metadata is asked for first, and the data goes beside it.
    let log = run(&toy, Boundary::Prefetch, 0, bytes, true);
    assert_eq!(log.order(), "R999 A1064 W1000+64 W1065+4", "{}", log.line());
}

/// Goal: memory that begins in the middle of a page is walked page by page all the same.
#[test]
fn memory_may_begin_inside_a_page() {
    let mut toy = Toy::new(9);
    toy.run(0, 64, 100);
    let log = toy::run_pages(&toy, Boundary::EveryPiece, 0, &[(1536, 32768 - 1536)]);
    assert_eq!(log.segments(), vec![vec![2560, 4096, 4096, 4096, 4096, 4096, 4096, 4096]]);
    let log = toy::run_pages(&toy, Boundary::Prefetch, 0, &[(1536, 32768 - 1536)]);
    assert_eq!(log.segments(), vec![vec![31232]], "ours takes memory as it comes");
}

/// Goal: the counts of the document's machine, from the mappings of an empty ext3 on it: 512 MiB,
/// pages of 16 KiB, bios of 512 KiB. Method: 4 MiB behind each table, groups of 32768 blocks that
/// begin with 514 blocks of their own.
#[test]
fn counts_of_the_documents_machine() {
    let toy = toy::document_ext3();
    let counts: Vec<(&str, usize, usize)> = Boundary::ALL
        .into_iter()
        .map(|rule| {
            let log = run(&toy, rule, 0, 512 << 20, true);
            (rule.name(), log.mappings, log.bios().len())
        })
        .collect();
    assert_eq!(
        counts,
        [
            ("every-piece", 133, 31_875),
            ("first-piece", 133, 1_156),
            ("last-piece-early", 133, 1_157),
            ("last-piece", 133, 1_029),
            ("after-add", 133, 1_029),
            ("none", 133, 1_029),
            ("prefetch", 133, 1_029),
        ]
    );
}
