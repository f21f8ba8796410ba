//! Copies a tree of directories and files into an image that is there already, with a crate of
//! somebody else: `iopath-peers CRATE IMAGE TREE`, CRATE being rust-fs-ext4, rsext4 or rust-fs-xfs.
//! And `iopath-peers create|stat|statx|unlink COUNT LABEL`, which tells how long so many names in the
//! current directory take: `@ LABEL NANOSECONDS`. And `iopath-peers null IMAGE DIR`, a FUSE server
//! that does nothing.
//!
//! Each crate is used as its documentation says, through its own device for image files where it
//! has one, and everything is on the image when the program ends.

#[allow(dead_code, reason = "the protocol as a whole; ours has the rest")]
#[path = "../../crates/fuse/src/abi.rs"]
mod abi;
mod names;
mod null;
mod rsext4_way;
mod rust_fs_ext4_way;
mod rust_fs_xfs_way;

use std::error::Error;
use std::fs;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Something that takes directories and files.
trait Target {
    /// A directory, by whatever the crate names it with.
    type Dir;

    fn root(&mut self) -> Self::Dir;
    fn mkdir(&mut self, dir: &Self::Dir, name: &str) -> Result<Self::Dir>;
    fn file(&mut self, dir: &Self::Dir, name: &str, content: &[u8]) -> Result<()>;
    /// Everything is on the image afterwards.
    fn finish(self) -> Result<()>;
}

fn copy<T: Target>(mut target: T, tree: &Path) -> Result<()> {
    let root = target.root();
    below(&mut target, &root, tree)?;
    target.finish()
}

fn below<T: Target>(target: &mut T, dir: &T::Dir, from: &Path) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(from)?.collect::<std::result::Result<_, _>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = entry.file_name().into_string().map_err(|name| format!("{name:?}"))?;
        if entry.file_type()?.is_dir() {
            let made = target.mkdir(dir, &name)?;
            below(target, &made, &entry.path())?;
        } else {
            target.file(dir, &name, &fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, image, tree] = args.as_slice() else {
        return Err("usage: iopath-peers rust-fs-ext4|rsext4|rust-fs-xfs IMAGE TREE\n       \
                    iopath-peers create|stat|statx|unlink COUNT LABEL\n       \
                    iopath-peers null IMAGE DIR"
            .into());
    };
    if matches!(name.as_str(), "create" | "stat" | "statx" | "unlink") {
        println!("@ {tree} {}", names::run(name, image)?);
        return Ok(());
    }
    let (image, tree) = (Path::new(image), Path::new(tree));
    match name.as_str() {
        "null" => null::serve(image, tree),
        "rust-fs-ext4" => copy(rust_fs_ext4_way::open(image)?, tree),
        "rsext4" => copy(rsext4_way::open(image)?, tree),
        "rust-fs-xfs" => copy(rust_fs_xfs_way::open(image)?, tree),
        other => Err(format!("{other}: not one of rust-fs-ext4, rsext4, rust-fs-xfs, null").into()),
    }
}
