//! Walks that are kept answer as walks anew: random calls by several users, beside a mount that
//! keeps none.

use crate::support::*;
use ext4::MountOptions;
use testkit::walks;

#[test]
fn kept_walks_answer_as_walks_anew() {
    let mut served = 0;
    for seed in seeds(6) {
        let _watchdog = Watchdog::new(format!("walks, seed {seed}"), 240);
        rt::testing::world(|cx| {
            served += walks::compare(cx, seed, &|cx, name_cache| {
                let device = fresh(cx, 16 << 20, "ext4", 1024);
                let options = MountOptions { name_cache, ..MountOptions::default() };
                try_mount(cx, device, 4 << 20, options).expect("mount").0
            });
        });
    }
    assert!(served > 1000, "{served} calls did something");
}
