//! Makes an ext4 image with two files in it and checks it:
//! `cargo run --example build_image -- disk.img`.

use std::ffi::OsString;

use anyhow::{Context, Result, ensure};
use image::Image;

fn main() -> Result<()> {
    run(std::env::args_os().skip(1))
}

/// What `main` does, with its arguments.
pub fn run(mut args: impl Iterator<Item = OsString>) -> Result<()> {
    let path = args.next().context("give the image to make")?;
    let fs = Image::create(path, 64 << 20).label("example").make()?.fs()?;
    fs.create_dir_all("/etc/conf.d")?;
    fs.write("/etc/hostname", "box\n")?;
    fs.write("/etc/conf.d/net", "dhcp\n")?;
    fs.set_mode("/etc/conf.d/net", 0o600)?;
    fs.symlink("conf.d/net", "/etc/net")?;
    // The image is complete, and e2fsck finds it clean, from here on.
    let image = fs.unmount()?;
    let report = image.check()?;
    ensure!(report.clean, "the check found {:?}", report.findings);
    Ok(())
}
