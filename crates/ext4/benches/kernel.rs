//! Creates, stats and removes per second beside the kernel's loop mount of ext4. Run with
//! `cargo bench -p iopath-ext4 --bench kernel` as root; the ordinary tests run it with tiny sizes.

mod mounted;

use mounted::{SIZE, mounted};
use testkit::beside_kernel::{Side, compare};
use testkit::judge;

/// The heap that the command has, too.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    compare(&Side {
        kind: "ext4",
        make: &|image| judge::mke2fs(image, SIZE, &["-t", "ext4", "-N", "400000"]),
        mount: &|cx| mounted(cx),
    });
}
