//! One file under random operations beside a neighbour that fills the device: every byte is
//! compared, every `ENOSPC` is judged. `IOPATH_FSX_OPS=n` makes more operations, `IOPATH_SEEDS=n`
//! runs more seeds.

use crate::world::{Cell, seeds};
use testkit::fsx::Sort;
use testkit::fsx::space::Cost;
use testkit::trials;

const BYTES: u64 = 48 << 20;
/// The cells, with the bytes of their blocks.
const CELLS: [(Cell, u64); 4] = [
    (Cell(&[]), 4096),
    (Cell(&[('b', "size=1024"), ('m', "rmapbt=1")]), 1024),
    (Cell(&[('m', "reflink=0")]), 4096),
    (Cell(&[('b', "size=8k")]), 8192),
];

#[test]
fn a_file_holds_what_it_was_given() {
    for seed in seeds(4) {
        let (cell, block) = CELLS[seed as usize % CELLS.len()];
        let report = trials::one_file(cell, BYTES, Cost::xfs(block, BYTES / block, 4), seed);
        let shares = !report.left_out.contains(&Sort::Clone);
        assert_eq!(
            shares,
            !cell.0.contains(&('m', "reflink=0")),
            "{cell:?}: {:?}",
            report.left_out
        );
    }
}
