//! Both passes on bitmaps alone: steps, exactly, and their time without the copy.

use std::hint::black_box;

use rt::Cx;
use xfs::log::buf_item::bitmap::DirtyMap;
use xfs::log::buf_item::walk::{Addresses, Mapped, Paged, Unprobed, Variant, Visits, Walk};

use super::bed::Way;
use super::parameters::Parameters;
use crate::program::Figures;

/// Repetitions between two looks at the clock: a stretch that other tasks seldom interrupt.
const BATCH: u64 = 50;

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

/// The figures of both passes over one bitmap, the ways in turns.
fn measure<A: Addresses>(
    cx: &Cx,
    plan: &Parameters,
    map: &DirtyMap,
    memory: &A,
    ways: &[Way],
) -> Vec<Figures> {
    let mut nanos = vec![f64::INFINITY; ways.len()];
    for _ in 0..plan.repeats.div_ceil(BATCH) {
        for (least, way) in nanos.iter_mut().zip(ways) {
            let start = cx.now();
            for _ in 0..BATCH {
                black_box(commit(black_box(map), black_box(memory), black_box(way.variant())));
            }
            *least = least.min(cx.now().since(start).0 as f64 / BATCH as f64);
        }
    }
    let all: Vec<_> = ways.iter().map(|way| regions(map, memory, way.variant())).collect();
    let in_one_piece = |&(first, count): &(usize, usize)| {
        let address = |chunk: usize| memory.address(chunk * 128);
        (first..first + count).all(|at| address(at) == address(first) + 128 * (at - first) as u64)
    };
    let alike = all.iter().all(|own| *own == all[0] && own.iter().all(in_one_piece));
    let figures = |(index, way): (usize, &Way)| {
        let visits = visits(map, memory, way.variant());
        let mut figures = Figures::default();
        figures.set_all([
            ("bitmap_steps", (visits.bits + visits.addresses) as f64),
            ("bitmap_ns", nanos[index]),
            ("bitmap_regions", all[index].len() as f64),
            ("bitmap_alike", f64::from(u8::from(alike))),
        ]);
        figures
    };
    ways.iter().enumerate().map(figures).collect()
}

/// The figures of the bitmap that a case describes, for each way.
pub(super) fn bitmap(cx: &Cx, plan: &Parameters, ways: &[Way]) -> Vec<Figures> {
    let bytes = plan.bytes.0 as usize;
    let pages = (0..bytes.div_ceil(4096) as u64).map(|page| page * 8192).collect();
    let paged = Paged { pages, page_size: 4096, skip: 0 };
    let mut map = match plan.unmapped {
        true => DirtyMap::with_cuts(bytes, paged.cuts()),
        false => DirtyMap::new(bytes),
    };
    for time in 0..plan.times {
        let at = time * plan.step;
        plan.ranges.iter().for_each(|&[first, last]| {
            map.log(at + first, at + last);
        });
    }
    match plan.unmapped {
        true => measure(cx, plan, &map, &paged, ways),
        false => measure(cx, plan, &map, &Mapped, ways),
    }
}
