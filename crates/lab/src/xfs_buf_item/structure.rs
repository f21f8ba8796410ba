//! Both passes on bitmaps alone: steps, exactly, and their time without the copy.

use std::hint::black_box;

use rt::Cx;
use xfs::log::buf_item::bitmap::DirtyMap;
use xfs::log::buf_item::walk::{Addresses, Mapped, Paged, Unprobed, Variant, Visits, Walk};

/// Repetitions between two looks at the clock: a stretch that other tasks seldom interrupt.
const BATCH: u64 = 50;

/// What both passes take for one bitmap.
#[derive(Clone, Debug)]
pub struct Steps {
    /// What is dirty.
    pub title: &'static str,
    /// Steps of each variant.
    pub visits: [Visits; 3],
    /// Nanoseconds of each, the least of several rounds.
    pub nanos: [f64; 3],
    /// Regions of each.
    pub regions: [usize; 3],
    /// The regions are the same in all variants and each lies in one piece of memory.
    pub alike: bool,
}

/// Name, bytes of the buffer, whether its pages are scattered, and the ranges that are dirty.
struct Case {
    title: &'static str,
    bytes: usize,
    unmapped: bool,
    ranges: Vec<(usize, usize)>,
}

fn cases() -> Vec<Case> {
    let case = |title, bytes, unmapped, ranges| Case { title, bytes, unmapped, ranges };
    let pointers = |inodes: usize| (0..inodes).map(|n| (n * 512 + 96, n * 512 + 99)).collect();
    vec![
        case("64 KiB, all", 65536, false, vec![(0, 65535)]),
        case("64 KiB, header and half", 65536, false, vec![(0, 63), (32000, 65535)]),
        case(
            "64 KiB, every second chunk",
            65536,
            false,
            (0..256).map(|n| (n * 256, n * 256)).collect(),
        ),
        case("64 KiB, one chunk", 65536, false, vec![(40000, 40001)]),
        case("4 KiB, all", 4096, false, vec![(0, 4095)]),
        case("4 KiB, one chunk", 4096, false, vec![(100, 101)]),
        case("cluster of 16 KiB, one unlinked pointer", 16384, true, pointers(1)),
        case("cluster of 16 KiB, all unlinked pointers", 16384, true, pointers(32)),
        case("cluster of 16 KiB, all", 16384, true, vec![(0, 16383)]),
    ]
}

fn regions<A: Addresses>(map: &DirtyMap, memory: &A, variant: Variant) -> Vec<(usize, usize)> {
    let mut regions = Vec::new();
    let probe = &mut Unprobed;
    Walk { map, memory, probe }.format(variant, &mut |first, count| regions.push((first, count)));
    regions
}

fn visits<A: Addresses>(map: &DirtyMap, memory: &A, variant: Variant) -> Visits {
    let mut probe = Visits::default();
    let mut walk = Walk { map, memory, probe: &mut probe };
    walk.size(variant);
    walk.format(variant, &mut |_, _| {});
    probe
}

#[inline(never)]
fn commit<A: Addresses>(map: &DirtyMap, memory: &A, variant: Variant) -> usize {
    let mut walk = Walk { map, memory, probe: &mut Unprobed };
    let size = walk.size(variant);
    let mut sum = size.regions + size.bytes;
    walk.format(variant, &mut |first, count| sum = sum.wrapping_mul(31) + (first ^ count));
    sum
}

fn measure<A: Addresses>(cx: &Cx, case: &Case, map: &DirtyMap, memory: &A, repeats: u64) -> Steps {
    let mut nanos = [f64::INFINITY; 3];
    for _ in 0..repeats.div_ceil(BATCH) {
        for (least, variant) in nanos.iter_mut().zip(Variant::ALL) {
            let start = cx.now();
            for _ in 0..BATCH {
                black_box(commit(black_box(map), black_box(memory), black_box(variant)));
            }
            *least = least.min(cx.now().since(start).0 as f64 / BATCH as f64);
        }
    }
    let all = Variant::ALL.map(|variant| regions(map, memory, variant));
    let in_one_piece = |&(first, count): &(usize, usize)| {
        let address = |chunk: usize| memory.address(chunk * 128);
        (first..first + count).all(|at| address(at) == address(first) + 128 * (at - first) as u64)
    };
    let same = all.iter().all(|regions| *regions == all[0]);
    Steps {
        title: case.title,
        visits: Variant::ALL.map(|variant| visits(map, memory, variant)),
        nanos,
        regions: [0, 1, 2].map(|index: usize| all[index].len()),
        alike: same && all[2].iter().all(in_one_piece),
    }
}

/// All cases.
pub fn steps(cx: &Cx, repeats: u64) -> Vec<Steps> {
    let one = |case: &Case| {
        let pages = (0..case.bytes.div_ceil(4096) as u64).map(|page| page * 8192).collect();
        let paged = Paged { pages, page_size: 4096, skip: 0 };
        let mut map = match case.unmapped {
            true => DirtyMap::with_cuts(case.bytes, paged.cuts()),
            false => DirtyMap::new(case.bytes),
        };
        case.ranges.iter().for_each(|&(first, last)| {
            map.log(first, last);
        });
        match case.unmapped {
            true => measure(cx, case, &map, &paged, repeats),
            false => measure(cx, case, &map, &Mapped, repeats),
        }
    };
    cases().iter().map(one).collect()
}
