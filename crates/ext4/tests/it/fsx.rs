//! One file under random operations beside a neighbour that fills the device: every byte is
//! compared, every `ENOSPC` is judged. `IOPATH_FSX_OPS=n` makes more operations, `IOPATH_SEEDS=n`
//! runs more seeds.

use crate::support::*;
use testkit::fsx::Sort;
use testkit::fsx::space::Cost;
use testkit::trials;

const BYTES: u64 = 16 << 20;
const CELLS: [Cell; 7] = [
    Cell::new("ext4", 4096).journal(1024),
    Cell::new("ext4", 1024).journal(1024),
    Cell::new("ext3", 1024).journal(1024),
    Cell::new("ext2", 4096),
    Cell::new("ext4", 4096).features("inline_data").journal(1024),
    Cell::new("ext4", 1024).clusters(8).journal(1024),
    Cell::new("ext4", 16384),
];

#[test]
fn a_file_holds_what_it_was_given() {
    for seed in seeds(7) {
        let cell = CELLS[seed as usize % CELLS.len()];
        let (block, tables) = (u64::from(cell.block), cell.kind != "ext4");
        let cost = Cost::ext4(block, BYTES / block, tables);
        let cost = cost.clusters(cell.clusters.max(1).into());
        let report = trials::one_file(cell, BYTES, cost, seed);
        let ahead = [Sort::Zero, Sort::Allocate];
        let cannot = ahead.iter().any(|sort| report.left_out.contains(sort));
        assert_eq!(cannot, tables, "{cell:?}: {:?}", report.left_out);
    }
}
