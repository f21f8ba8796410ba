//! Lists the files of `experiments/`: each is built in under its name.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=experiments");
    // Asked when it runs, not when it was compiled: a target folder may have come from elsewhere.
    let root = env::var_os("CARGO_MANIFEST_DIR")
        .ok_or_else(|| io::Error::other("cargo sets CARGO_MANIFEST_DIR"))?;
    let folder = Path::new(&root).join("experiments");
    let mut paths = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort_by_key(|path| path.file_stem().map(OsStr::to_owned));
    let mut list = String::from("&[\n");
    for path in &paths {
        let name = path.file_stem().unwrap_or_default();
        writeln!(list, "    ({name:?}, include_str!({path:?})),").map_err(io::Error::other)?;
    }
    list.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join("experiments.rs"), list)
}
