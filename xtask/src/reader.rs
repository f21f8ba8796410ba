//! A reader of one format for whoever wants no more: what it depends on, how long it takes to
//! build, and on which systems its code compiles.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run;

/// The readers: a package, its features, and those of its dependencies that show the choice.
const READERS: &[(&str, &str, &str)] = &[
    ("iopath-image", "ext4", "iopath-ext4"),
    ("iopath-image", "xfs", "iopath-xfs"),
    ("iopath", "ext4", "iopath-ext4"),
    ("iopath", "xfs", "iopath-xfs"),
];

/// What no reader needs: the formats, of which it has one, are looked at apart.
const NOT_NEEDED: &[&str] = &[
    "io-uring",
    "fuser",
    "nix",
    "clap",
    "tokio",
    "iopath-fuse",
    "iopath-lab",
    "iopath-model",
    "iopath-nfs",
    "iopath-repair",
    "iopath-network",
    "iopath-sandbox",
    "iopath-workload",
];

/// Systems that the library is compiled for.
const SYSTEMS: &[&str] = &["x86_64-pc-windows-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin"];

/// What is compiled for them: all of the library that is no face of Linux.
const PORTABLE: &[&str] =
    &["-p", "iopath", "--no-default-features", "--features", "ext4,xfs,model,repair"];

/// Checks that a reader of one format depends on neither faces, lab nor ring, nor on the other one.
///
/// # Errors
/// Those that it has.
pub fn check() -> Result<()> {
    let mut wrong = Vec::new();
    for (package, feature, format) in READERS {
        let has = dependencies(package, feature)?;
        if !has.contains(*format) {
            wrong.push(format!("{package} with `{feature}` lacks {format}"));
        }
        let others = READERS.iter().map(|reader| reader.2).filter(|other| other != format);
        let unwanted = others.chain(NOT_NEEDED.iter().copied()).collect::<BTreeSet<_>>();
        let unwanted = unwanted.into_iter().filter(|name| has.contains(*name));
        wrong.extend(unwanted.map(|name| format!("{package} with `{feature}` needs {name}")));
    }
    if !wrong.is_empty() {
        bail!("a reader is not as small as it is meant to be:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// The packages that are compiled for a package with one feature.
fn dependencies(package: &str, feature: &str) -> Result<BTreeSet<String>> {
    let edges = ["-e", "normal,build", "--prefix", "none", "--format", "{p}"];
    let which = ["tree", "-p", package, "--no-default-features", "--features", feature];
    let output = run::cargo_output(&[&which[..], &edges].concat())?;
    let output = String::from_utf8(output).context("output of cargo tree")?;
    let names = output.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

/// Compiles the library for other systems, as far as their standard libraries are installed.
///
/// # Errors
/// What does not compile; a system whose library is missing.
pub fn platforms() -> Result<()> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(sysroot.context("rustc")?.stdout)?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    let is_there = |system: &&&str| libraries.join(system).is_dir();
    let missing: Vec<_> = SYSTEMS.iter().filter(|system| !is_there(system)).copied().collect();
    for system in SYSTEMS.iter().filter(is_there) {
        let check = ["check", "--quiet", "--target", system];
        run::step(system, || run::cargo(&[&check[..], PORTABLE].concat()))?;
    }
    if !missing.is_empty() {
        bail!("not tried: {0}; `rustup target add {0}` gets them", missing.join(" "));
    }
    Ok(())
}

/// Builds a program of three lines that reads a file out of an image, for each format, with nothing
/// built before and the profile that cargo gives a new program; prints how long that took.
///
/// # Errors
/// It does not build, or does not read.
#[allow(clippy::disallowed_methods, reason = "the build runs in real time")]
pub fn time() -> Result<()> {
    let folder = run::root().join("target/reader");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let library = run::root().join("crates/image");
    for (package, feature, _) in READERS.iter().filter(|reader| reader.0 == "iopath-image") {
        let project = folder.join(feature);
        fs::create_dir_all(project.join("src"))?;
        let about = "[workspace]\n[package]\nname = \"reader\"\nedition = \"2024\"\n";
        let chosen = format!("default-features = false\nfeatures = [\"{feature}\"]\n");
        let manifest = format!("{about}[dependencies.{package}]\npath = {library:?}\n{chosen}");
        fs::write(project.join("Cargo.toml"), manifest)?;
        fs::write(project.join("src/main.rs"), PROGRAM)?;
        // The versions that this project is tested with, and no time for the network.
        fs::copy(run::root().join("Cargo.lock"), project.join("Cargo.lock"))?;
        let mut fetch = Command::new(run::own_cargo());
        fetch.args(["fetch", "--quiet"]).current_dir(&project);
        if !fetch.status()?.success() {
            bail!("cargo fetch failed");
        }
        let mut build = Command::new("/usr/bin/env");
        build.args(["-u", "CARGO_TARGET_DIR", &run::own_cargo(), "build", "--offline"]);
        let (begin, before) = (Instant::now(), run::of_children()?);
        let output = build.args(["--quiet"]).current_dir(&project).status()?;
        let (elapsed, used) = (begin.elapsed().as_secs_f64(), run::of_children()? - before);
        if !output.success() {
            bail!("the reader of {feature} does not build");
        }
        let packages = dependencies(package, feature)?.len();
        println!("{feature}: {packages} packages, {elapsed:.1} s, {used:.1} s of processors");
    }
    Ok(())
}

/// Reads a file.
const PROGRAM: &str = r#"fn main() -> Result<(), image::Error> {
    let mut words = std::env::args_os().skip(1);
    let (Some(image), Some(path)) = (words.next(), words.next()) else { return Ok(()) };
    let bytes = image::Image::open(image)?.fs()?.read(path)?;
    println!("{}", String::from_utf8_lossy(&bytes));
    Ok(())
}
"#;
