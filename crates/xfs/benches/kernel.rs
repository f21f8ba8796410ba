//! Creates, stats and removes per second beside the kernel's loop mount of XFS. Run with
//! `cargo bench -p iopath-xfs --bench kernel` as root; the ordinary tests run it with tiny sizes.

mod mounted;

use mounted::{SIZE, mounted};
use testkit::beside_kernel::{Side, compare};
use testkit::judge;

/// The heap that the command has, too.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    compare(&Side {
        kind: "xfs",
        make: &|image| {
            let file = std::fs::File::create(image).expect("the image can be created");
            file.set_len(SIZE).expect("the image takes its size");
            judge::run_ok("mkfs.xfs", &[&"-q", &image]);
        },
        mount: &|cx| mounted(cx),
    });
}
