//! The three ways of formatting a buffer's bitmap, compared for any bitmap and any page layout.

use proptest::prelude::*;
use xfs::log::buf_item::bitmap::{CHUNK, DirtyMap};
use xfs::log::buf_item::walk::{Addresses, Mapped, Paged, Size, Unprobed, Variant, Visits, Walk};

type Regions = Vec<(usize, usize)>;

fn regions<A: Addresses>(map: &DirtyMap, memory: &A, variant: Variant) -> Regions {
    let mut regions = Vec::new();
    let probe = &mut Unprobed;
    Walk { map, memory, probe }.format(variant, &mut |first, count| {
        regions.push((first * CHUNK, count * CHUNK));
    });
    regions
}

fn size<A: Addresses>(map: &DirtyMap, memory: &A, variant: Variant) -> Size {
    Walk { map, memory, probe: &mut Unprobed }.size(variant)
}

fn visits<A: Addresses>(map: &DirtyMap, memory: &A, variant: Variant) -> Visits {
    let mut probe = Visits::default();
    let mut walk = Walk { map, memory, probe: &mut probe };
    walk.size(variant);
    walk.format(variant, &mut |_, _| {});
    probe
}

/// The bytes that the regions copy, one behind the other.
fn content(regions: &Regions, bytes: &[u8]) -> Vec<u8> {
    regions.iter().flat_map(|&(at, len)| bytes[at..at + len].iter().copied()).collect()
}

/// True where all of a region lies in one piece of memory.
fn in_one_piece<A: Addresses>(memory: &A, (at, len): (usize, usize)) -> bool {
    (at..at + len)
        .step_by(CHUNK)
        .all(|byte| memory.address(byte) == memory.address(at) + (byte - at) as u64)
}

fn dirty(bytes: usize, ranges: &[(usize, usize)], cuts: impl Iterator<Item = usize>) -> DirtyMap {
    let mut map = DirtyMap::with_cuts(bytes, cuts);
    for &(first, len) in ranges {
        let first = first % bytes;
        map.log(first, (first + len).min(bytes - 1));
    }
    map
}

/// Ranges that a directory block or an inode cluster sees: single bytes, headers, halves, all.
fn ranges() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let one = prop_oneof![
        (0usize..65536, 0usize..4),
        (0usize..65536, 0usize..700),
        (0usize..65536, 0usize..40000),
        Just((0, 65535)),
    ];
    prop::collection::vec(one, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// A buffer in one piece: the same regions, byte by byte, whichever way; the size pass of each
    /// is exact.
    #[test]
    fn mapped_buffers_are_formatted_alike(sectors in 1usize..=128, ranges in ranges()) {
        let bytes = sectors * 512;
        let map = dirty(bytes, &ranges, std::iter::empty());
        let expected = regions(&map, &Mapped, Variant::Bitwise);
        let exact = Size {
            regions: expected.len(),
            bytes: expected.iter().map(|region| region.1).sum(),
        };
        for variant in Variant::ALL {
            prop_assert_eq!(&regions(&map, &Mapped, variant), &expected);
            prop_assert_eq!(size(&map, &Mapped, variant), exact);
        }
    }

    /// Pages anywhere in memory, some of them neighbours, some changed about: bit by bit and ours
    /// give the same regions, each in one piece of memory, together the dirty bytes. The patch
    /// gives the same bytes, and reserves one region too few at the most (weak point 4).
    #[test]
    fn scattered_pages_are_cut_where_memory_jumps(
        pages in prop::collection::vec(0u64..24, 1..=16),
        skip in 0usize..8,
        ranges in ranges(),
    ) {
        let skip = skip * 512;
        let bytes = pages.len() * 4096 - skip;
        let pages = pages.iter().map(|page| page * 4096).collect();
        let memory = Paged { pages, page_size: 4096, skip };
        let map = dirty(bytes, &ranges, memory.cuts());
        let filled: Vec<u8> = (0..bytes).map(|at| (at / CHUNK % 251) as u8).collect();
        let slow = regions(&map, &memory, Variant::Bitwise);
        let ours = regions(&map, &memory, Variant::Runs);
        prop_assert_eq!(&slow, &ours);
        prop_assert!(ours.iter().all(|&region| in_one_piece(&memory, region)));
        let counted = size(&map, &memory, Variant::Runs);
        prop_assert_eq!(counted.regions, ours.len());
        prop_assert_eq!(counted.bytes, content(&ours, &filled).len());
        prop_assert_eq!(size(&map, &memory, Variant::Bitwise), counted);
        let patch = regions(&map, &memory, Variant::Contiguous);
        prop_assert_eq!(content(&patch, &filled), content(&ours, &filled));
        let reserved = size(&map, &memory, Variant::Contiguous);
        prop_assert!(reserved.regions + 1 >= patch.len() && reserved.bytes == counted.bytes);
    }
}

/// Weak point 1: two jumps that cancel (pages A, X, A + 2) are not seen at the ends of a run.
#[test]
fn jumps_that_cancel_are_seen_by_ours_and_not_by_the_patch() {
    let pages = vec![0x10000, 0x90000, 0x12000];
    let memory = Paged { pages, page_size: 4096, skip: 0 };
    // The last chunk stays clean, so that the address behind the run exists.
    let map = dirty(3 * 4096, &[(0, 3 * 4096 - CHUNK - 1)], memory.cuts());
    let patch = regions(&map, &memory, Variant::Contiguous);
    assert_eq!(patch, [(0, 3 * 4096 - CHUNK)]);
    assert!(!in_one_piece(&memory, patch[0]), "the patch's region spans a foreign page");
    let ours = regions(&map, &memory, Variant::Runs);
    assert_eq!(ours, [(0, 4096), (4096, 4096), (8192, 4096 - CHUNK)]);
    assert!(ours.iter().all(|&region| in_one_piece(&memory, region)));
}

/// Weak point 2: the patch looks at the address behind the last chunk, which no page has.
#[test]
fn a_run_up_to_the_end_of_the_last_page_is_one_region_for_ours() {
    let memory = Paged { pages: vec![0x10000], page_size: 4096, skip: 0 };
    let map = dirty(4096, &[(0, 4095)], memory.cuts());
    let steps = visits(&map, &memory, Variant::Contiguous);
    assert!(steps.bits > 32, "the patch goes bit by bit here: {steps:?}");
    assert_eq!(regions(&map, &memory, Variant::Runs), [(0, 4096)]);
    let steps = visits(&map, &memory, Variant::Runs);
    assert_eq!(steps, Visits { bits: 1, addresses: 0 });
}

/// Weak point 3: behind a jump the patch's size pass counts one region too many.
#[test]
fn the_size_of_ours_is_exact_behind_a_jump() {
    let memory = Paged { pages: vec![0x10000, 0x90000], page_size: 4096, skip: 0 };
    let map = dirty(8192, &[(4096 - 256, 511)], memory.cuts());
    assert_eq!(regions(&map, &memory, Variant::Contiguous).len(), 2);
    assert_eq!(size(&map, &memory, Variant::Contiguous).regions, 3);
    assert_eq!(size(&map, &memory, Variant::Runs), Size { regions: 2, bytes: 512 });
}

/// Weak point 4: where a jump is as far as the run is long the patch's size pass, which compares
/// with that length, takes it for none, and counts one region too few.
#[test]
fn a_jump_as_far_as_the_run_is_long_is_seen_by_ours() {
    // The run of 33 chunks begins in the last one of the first page.
    let pages = vec![61_440, 61_440 + 3968 + 33 * 128];
    let memory = Paged { pages, page_size: 4096, skip: 0 };
    let map = dirty(8192, &[(3968, 33 * 128 - 1)], memory.cuts());
    assert_eq!(regions(&map, &memory, Variant::Contiguous).len(), 2);
    assert_eq!(size(&map, &memory, Variant::Contiguous).regions, 1);
    assert_eq!(size(&map, &memory, Variant::Runs).regions, 2);
}

/// The steps of both passes, exactly: by the number of dirty chunks before, by runs after.
#[test]
fn steps_follow_bits_before_and_runs_after() {
    for (bytes, chunks) in [(65536, 512), (4096, 32)] {
        let map = dirty(bytes, &[(0, bytes - 1)], std::iter::empty());
        let steps = |variant| visits(&map, &Mapped, variant);
        // One search for each chunk and one that finds nothing, in each pass; two addresses for
        // each pair of neighbours.
        let expected = Visits { bits: 2 * (chunks + 1), addresses: 4 * (chunks - 1) };
        assert_eq!(steps(Variant::Bitwise), expected);
        // First bit, length, and one that finds nothing; two addresses for the run.
        assert_eq!(steps(Variant::Contiguous), Visits { bits: 6, addresses: 4 });
        assert_eq!(steps(Variant::Runs), Visits { bits: 1, addresses: 0 });
    }
    // One chunk: nothing to gain, nothing lost.
    let map = dirty(65536, &[(1000, 0)], std::iter::empty());
    let steps = |variant| visits(&map, &Mapped, variant);
    assert_eq!(steps(Variant::Bitwise), Visits { bits: 4, addresses: 0 });
    assert_eq!(steps(Variant::Contiguous), Visits { bits: 6, addresses: 0 });
    assert_eq!(steps(Variant::Runs), Visits { bits: 1, addresses: 0 });
}
