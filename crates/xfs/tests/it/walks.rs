//! Walks that are kept answer as walks anew: random calls by several users, beside a mount that
//! keeps none.

use crate::world::*;
use testkit::walks;
use xfs::MountOptions;

#[test]
fn kept_walks_answer_as_walks_anew() {
    let mut served = 0;
    for seed in seeds(3) {
        let _watchdog = Watchdog::new(format!("walks, seed {seed}"), 240);
        rt::testing::world(|cx| {
            served += walks::compare(cx, seed, &|cx, name_cache| {
                let device = Cell(&[]).fresh(cx, 96 << 20);
                let options = MountOptions { name_cache, ..MountOptions::default() };
                mount_with(cx, device, 4 << 20, options).0
            });
        });
    }
    assert!(served > 500, "{served} calls did something");
}
