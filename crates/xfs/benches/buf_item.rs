//! What size and format of a buffer's bitmap cost in each variant, without the copy of the data.
//!
//! `cargo bench -p iopath-xfs --bench buf_item`; the variants take turns, the least of several
//! rounds counts. `-- VARIANT CASE COUNT` runs one of them only, for counting instructions under
//! `valgrind --tool=callgrind`; `--test` does everything a few times, to see that it works.

use std::hint::black_box;

use rt::{Cx, Runtime};
use xfs::log::buf_item::bitmap::DirtyMap;
use xfs::log::buf_item::walk::{Mapped, Unprobed, Variant, Walk};

/// Name, bytes of the buffer, and the ranges that are dirty.
type Case = (&'static str, usize, &'static [(usize, usize)]);

const CASES: [Case; 5] = [
    ("64k-full", 65536, &[(0, 65535)]),
    ("4k-full", 4096, &[(0, 4095)]),
    ("64k-half", 65536, &[(0, 63), (32000, 65535)]),
    ("64k-one-bit", 65536, &[(40000, 40001)]),
    ("4k-one-bit", 4096, &[(100, 101)]),
];

fn map_of(case: &Case) -> DirtyMap {
    let mut map = DirtyMap::new(case.1);
    case.2.iter().for_each(|&(first, last)| {
        map.log(first, last);
    });
    map
}

/// Both passes of a commit: the size, then the regions.
#[inline(never)]
fn commit(map: &DirtyMap, variant: Variant) -> usize {
    let mut walk = Walk { map, memory: &Mapped, probe: &mut Unprobed };
    let size = walk.size(variant);
    let mut sum = size.regions + size.bytes;
    walk.format(variant, &mut |first, count| sum = sum.wrapping_mul(31) + (first ^ count));
    sum
}

fn run(map: &DirtyMap, variant: Variant, rounds: u64) {
    for _ in 0..rounds {
        black_box(commit(black_box(map), black_box(variant)));
    }
}

fn measure(cx: &mut Cx, rounds: u64) {
    println!(
        "{:12} {:>12} {:>12} {:>12}   nanoseconds, size + format",
        "", "bitwise", "contiguous", "runs"
    );
    for case in &CASES {
        let map = map_of(case);
        let mut least = [u64::MAX; 3];
        for _ in 0..9 {
            for (index, variant) in Variant::ALL.into_iter().enumerate() {
                let start = cx.now();
                run(&map, variant, rounds);
                least[index] = least[index].min(cx.now().since(start).0);
            }
        }
        let ns = least.map(|total| total as f64 / rounds as f64);
        println!("{:12} {:12.1} {:12.1} {:12.1}", case.0, ns[0], ns[1], ns[2]);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [variant, case, count] = &args[..] {
        let variant = Variant::by_name(variant).expect("a variant");
        let case = CASES.iter().find(|known| known.0 == case).expect("a case");
        let count = count.parse().expect("a count");
        return run(&map_of(case), variant, count);
    }
    let rounds = if args.iter().any(|arg| arg == "--test") { 10 } else { 200_000 };
    Runtime::real_seeded(1, 1).enter("bench", |cx| measure(cx, rounds));
}
