//! The reference file system passes the suite that it is the reference for.

use rt::{Runtime, World, WorldConfig};
use testkit::{conformance, memfs::MemFs};

#[test]
fn memfs_conforms_in_virtual_time() {
    let mut world = World::new(WorldConfig::default());
    world.run("conformance", |cx| conformance::run_all(cx, &MemFs::new()));
}

#[test]
fn memfs_conforms_in_real_time() {
    Runtime::real(1).enter("conformance", |cx| conformance::run_all(cx, &MemFs::new()));
}
