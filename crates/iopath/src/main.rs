//! The command `iopath`.

use std::process::ExitCode;

fn main() -> ExitCode {
    iopath::cli::main(std::env::args_os().collect())
}
