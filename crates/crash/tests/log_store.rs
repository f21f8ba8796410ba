//! The example: the bug of the small store is found, and its repair passes.

#[path = "../examples/log_store.rs"]
#[expect(dead_code, reason = "the program around the test is not run here")]
mod log_store;

use crash::Kind;
use log_store::{Compaction, test};

#[test]
fn the_careful_store_keeps_its_keys() {
    test(Kind::Ext4, Compaction::Careful);
    test(Kind::Xfs, Compaction::Careful);
}

#[test]
#[should_panic(expected = "values were put, found {}")]
fn the_bug_of_the_careless_one_is_found() {
    test(Kind::Xfs, Compaction::Careless);
}
