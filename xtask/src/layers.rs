//! The rule of the layers: a crate depends on crates below it only.

use anyhow::{Context, Result, bail};

use crate::run;

/// From the ground up. Crates of one row may not know each other.
const LAYERS: &[&[&str]] = &[
    &["iopath-base", "iopath-sandbox"],
    &["iopath-fscrypt"],
    &["iopath-rt"],
    &["iopath-block"],
    &["iopath-device"],
    &["iopath-model", "iopath-container"],
    &["iopath-cache", "iopath-network"],
    &["iopath-jbd2", "iopath-vfs"],
    &["iopath-testkit"],
    &["iopath-ext4", "iopath-xfs", "iopath-nfs"],
    &["iopath-repair"],
    &["iopath-workload", "iopath-fuse", "iopath-image", "iopath-crash"],
    &["iopath-lab", "iopath-python", "iopath-capi"],
    &["iopath"],
    &["xtask"],
];

/// Test code only: every crate may take it as a development dependency, none otherwise.
const TEST_ONLY: &str = "iopath-testkit";

fn layer(name: &str) -> Result<usize> {
    LAYERS.iter().position(|row| row.contains(&name)).with_context(|| {
        format!("crate {name} has no layer; add it to LAYERS in xtask/src/layers.rs")
    })
}

/// Reads the dependencies from `cargo metadata` and names every edge that goes up or sideways.
pub fn check() -> Result<()> {
    let metadata = run::metadata(false)?;
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let own = layer(name)?;
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["path"].is_null() {
                continue;
            }
            let target = dependency["name"].as_str().unwrap_or_default();
            let development = dependency["kind"] == "dev";
            if target == TEST_ONLY {
                if !development {
                    wrong.push(format!("{name} -> {target}: a test crate outside of tests"));
                }
            } else if layer(target)? >= own {
                wrong.push(format!("{name} -> {target}: goes up or sideways"));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("the layers do not hold:\n  {}", wrong.join("\n  "));
    }
    crate::circles::check()
}
