//! The command `iopath`.

use std::process::ExitCode;

/// Small files and names come and go faster than with glibc's heap.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    iopath::cli::main(std::env::args_os().collect())
}
