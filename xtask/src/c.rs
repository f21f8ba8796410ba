//! `libiopath`: built as a static and a shared library, installed, and judged by C compilers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

const CRATE: &str = "crates/capi";
const HEADER: &str = "crates/capi/include/iopath.h";
const MAP: &str = "crates/capi/iopath.map";
const OUT: &str = "target/c";
/// The number in the name of the shared library: programs of another number do not load it.
const ABI: &str = "0";
/// What a static Rust library needs of the system.
const SYSTEM: &[&str] = &["-lpthread", "-ldl", "-lm", "-lgcc_s"];
/// Warnings are errors in what we ask others to compile.
const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror"];

/// Builds the library for the tests, and lets C compilers, the linker and the examples judge it.
///
/// # Errors
/// What failed, or what is missing with the command that installs it.
pub fn test() -> Result<()> {
    require("cc", "apt-get install -y gcc libc6-dev")?;
    let archive = built()?;
    let shared = link(&archive, Path::new(OUT))?;
    symbols(&shared)?;
    let header = format!("-I{CRATE}/include");
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        let all = [STRICT, &["-x", language, "-fsyntax-only", &header, HEADER]].concat();
        run::program(compiler, &all).context("apt-get install -y g++")?;
    }
    let place = Path::new(OUT).join("examples");
    std::fs::create_dir_all(&place)?;
    let archive = run::text(&archive)?.to_owned();
    let folder = format!("-L{OUT}");
    let path = format!("-Wl,-rpath,{}", run::text(&std::env::current_dir()?.join(OUT))?);
    let sanitized: Vec<&str> =
        [&["-g", "-fsanitize=address,undefined", archive.as_str()], SYSTEM].concat();
    for (kind, libraries) in [("asan", sanitized), ("shared", vec![&folder, "-liopath", &path])] {
        for name in ["build_image", "read_file", "threads", "refusals"] {
            let program = place.join(format!("{name}-{kind}"));
            let source = format!("{CRATE}/examples/{name}.c");
            let arguments = ["-O1", &header, "-o", run::text(&program)?, &source, "-pthread"];
            run::program("cc", &[STRICT, &arguments, &libraries].concat())?;
        }
        examples(&place, kind)?;
    }
    Ok(())
}

/// Runs the examples, one after the other, on one image.
fn examples(place: &Path, kind: &str) -> Result<()> {
    for format in ["ext4", "xfs"] {
        let image = place.join(format!("{format}.img"));
        let _none_yet = std::fs::remove_file(&image);
        let image = run::text(&image)?.to_owned();
        let said = example(place, kind, "build_image", &[&image, format])?;
        expect("build_image", &said, "/etc/passwd: ENOENT: No such file or directory")?;
        expect(
            "read_file",
            &example(place, kind, "read_file", &[&image, "/etc/hostname"])?,
            "box\n",
        )?;
        expect("threads", &example(place, kind, "threads", &[&image])?, "thread-4 524288")?;
        expect("refusals", &example(place, kind, "refusals", &[&image])?, "as it should be")?;
        std::fs::remove_file(&image)?;
    }
    Ok(())
}

fn example(place: &Path, kind: &str, name: &str, arguments: &[&str]) -> Result<String> {
    let program = place.join(format!("{name}-{kind}"));
    let output = Command::new(&program).args(arguments).output().context(name.to_owned())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}: {said}{error}", program.display(), output.status);
    }
    Ok(said)
}

fn expect(name: &str, said: &str, wanted: &str) -> Result<()> {
    match said.contains(wanted) {
        true => Ok(()),
        false => bail!("{name}: it says {said:?}, not {wanted:?}"),
    }
}

/// Compares the header with what cbindgen makes of the crate; `bless` writes it.
///
/// # Errors
/// They differ, or cbindgen is missing.
pub fn header(bless: bool) -> Result<()> {
    require("cbindgen", "cargo install cbindgen --version 0.29.4")?;
    std::fs::create_dir_all(OUT)?;
    let made = format!("{OUT}/iopath.h");
    let target = if bless { HEADER } else { &made };
    let config = format!("{CRATE}/cbindgen.toml");
    run::program("cbindgen", &["--quiet", "--config", &config, "--output", target, CRATE])?;
    if !bless && std::fs::read(HEADER)? != std::fs::read(&made)? {
        bail!(
            "{HEADER} is not what cbindgen makes of the crate (diff {HEADER} {made}); \
             then: cargo xtask c --header --bless"
        );
    }
    Ok(())
}

/// Installs the library below a prefix.
///
/// # Errors
/// It cannot be built or written.
pub fn install(prefix: &str) -> Result<()> {
    require("cc", "apt-get install -y gcc libc6-dev")?;
    let archive = archive_of(&["build", "-p", "iopath-capi", "--lib", "--release"])?;
    let prefix = Path::new(prefix);
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    let pkg_config = lib.join("pkgconfig");
    for folder in [&lib, &include, &pkg_config] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    link(&archive, &lib)?;
    std::fs::copy(&archive, lib.join("libiopath.a"))?;
    std::fs::copy(HEADER, include.join("iopath.h"))?;
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: iopath\n\
         Description: Files inside ext2, ext3, ext4 and XFS images\nVersion: {version}\n\
         Libs: -L${{libdir}} -liopath\nLibs.private: {}\nCflags: -I${{includedir}}\n",
        prefix.display(),
        SYSTEM.join(" ")
    );
    std::fs::write(pkg_config.join("iopath.pc"), text)?;
    Ok(())
}

/// The static library, as the tests of the workspace build it.
fn built() -> Result<PathBuf> {
    archive_of(&["test", "--workspace", "--no-run", "--test", "declared"])
}

/// The static library that a call of cargo builds.
fn archive_of(args: &[&str]) -> Result<PathBuf> {
    for message in run::artifacts(args)? {
        let is_ours =
            message["target"]["name"] == "iopath_capi" && message["profile"]["test"] == false;
        let files = message["filenames"].as_array().into_iter().flatten();
        let mut files = files.filter_map(|file| file.as_str()).map(PathBuf::from);
        if let (true, Some(path)) =
            (is_ours, files.find(|file| file.extension() == Some("a".as_ref())))
        {
            return Ok(path);
        }
    }
    bail!("`cargo {}` builds no static library", args.join(" "))
}

/// Links the shared library, with the versions of its symbols. Rust gives the linker a script of
/// its own and takes no second one: so the static library is linked once more.
fn link(archive: &Path, folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let real = folder.join(format!("libiopath.so.{ABI}"));
    let (whole, map) = (run::text(archive)?, format!("-Wl,--version-script={MAP}"));
    let soname = format!("-Wl,-soname,libiopath.so.{ABI}");
    let inner = ["-Wl,--whole-archive", whole, "-Wl,--no-whole-archive"];
    let flags = ["-shared", "-o", run::text(&real)?, &map, &soname, "-Wl,--gc-sections"];
    let strict = ["-Wl,-z,defs", "-Wl,-z,relro,-z,now"];
    run::program("cc", &[&flags[..], &inner, &strict, SYSTEM].concat())?;
    let link = folder.join("libiopath.so");
    let _none_yet = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(format!("libiopath.so.{ABI}"), link)?;
    Ok(real)
}

/// The names that the map exports.
fn exported() -> Result<Vec<String>> {
    let map = std::fs::read_to_string(MAP)?;
    let lines = map.lines().map(str::trim);
    let names = lines.filter(|line| line.starts_with("iopath_"));
    Ok(names.map(|line| line.trim_end_matches(';').to_owned()).collect())
}

/// The shared library has the symbols of the map, with their version, and no others.
fn symbols(shared: &Path) -> Result<()> {
    require("readelf", "apt-get install -y binutils")?;
    let output = Command::new("readelf").args(["--dyn-syms", "--wide"]).arg(shared).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ours = text.lines().filter(|line| !line.contains(" UND ") && line.contains(" GLOBAL "));
    let mut there: Vec<&str> = ours
        .filter(|line| line.contains(" FUNC ") || line.contains(" OBJECT "))
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|name| !name.starts_with("IOPATH_"))
        .collect();
    there.sort_unstable();
    let mut wanted: Vec<String> =
        exported()?.iter().map(|name| format!("{name}@@IOPATH_{ABI}")).collect();
    wanted.sort_unstable();
    if there != wanted {
        bail!("{}: it has the symbols {there:?} instead of {wanted:?}", shared.display());
    }
    Ok(())
}

fn require(program: &str, advice: &str) -> Result<()> {
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => bail!("{program} is missing; install it with: {advice}"),
    }
}
