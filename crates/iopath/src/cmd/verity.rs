//! `verity`: files of ext4 whose content is verified at every read.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use base::{Errno, Ino};
use clap::{Args, Subcommand};
use ext4::Ext4;
use ext4::format::verity::{self, Descriptor, HashAlg, VerityParams};
use vfs::FileSystem;

use super::encrypt::on;
use crate::app::{App, at};
use crate::target::TargetPath;

/// Files of ext4 whose content is verified at every read, as with fsverity(1)
///
/// Such a file cannot change any more. The image needs the feature `verity`. Built-in signatures
/// are kept in the file, and not checked.
#[derive(Args)]
#[command(after_help = "Examples:
  iopath mkfs -O verity --size 1G disk.img
  iopath verity enable disk.img:/usr/bin/tool
  iopath verity enable --hash-alg sha512 --salt 00ff disk.img:/a disk.img:/b
  iopath verity measure disk.img:/usr/bin/tool
  iopath verity digest tool
  iopath verity verify disk.img:/usr/bin/tool")]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Enable verity of files: their content is fixed from then on
    Enable {
        #[command(flatten)]
        hashing: Hashing,
        /// A detached signature in PKCS#7 DER to keep in the file
        #[arg(long, value_name = "FILE")]
        signature: Option<PathBuf>,
        /// Files: TARGET:/path
        #[arg(required = true, value_name = "PLACE")]
        places: Vec<OsString>,
    },
    /// Print the digests of files with verity
    Measure {
        /// Files: TARGET:/path
        #[arg(required = true, value_name = "PLACE")]
        places: Vec<OsString>,
    },
    /// Compute the digests that files would have: of this system, or TARGET:/path
    Digest {
        #[command(flatten)]
        hashing: Hashing,
        /// Print the digits alone
        #[arg(long)]
        compact: bool,
        /// Files of this system or TARGET:/path
        #[arg(required = true, value_name = "FILE")]
        places: Vec<OsString>,
    },
    /// Read files with verity from end to end; exit status 1 where one differs from its hashes, or
    /// has no verity
    Verify {
        /// Files: TARGET:/path
        #[arg(required = true, value_name = "PLACE")]
        places: Vec<OsString>,
    },
}

#[derive(Args)]
struct Hashing {
    /// sha256 or sha512
    #[arg(long, default_value = "sha256")]
    hash_alg: HashAlg,
    /// Bytes of a block of the tree, at most those of the file system
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    block_size: u32,
    /// At most 32 bytes in hexadecimal digits
    #[arg(long, value_name = "HEX", default_value = "", hide_default_value = true)]
    salt: String,
}

/// The largest block that any system takes.
const BLOCK_MAX: u32 = 65536;
/// Bytes that are read at once.
const STEP: usize = 1 << 20;
/// What other file systems have not.
const WHAT: &str = "verity";

impl Hashing {
    fn params(&self) -> Result<VerityParams> {
        let salt = data_encoding::HEXLOWER_PERMISSIVE.decode(self.salt.as_bytes());
        let salt = salt.with_context(|| format!("--salt {}: not hexadecimal", self.salt))?;
        let params = VerityParams { alg: self.hash_alg, block_size: self.block_size, salt };
        params.check(BLOCK_MAX)?;
        Ok(params)
    }
}

/// Runs `verity`.
///
/// # Errors
/// The image cannot be opened or has no verity; a file cannot have it; its content was changed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    match &options.action {
        Action::Enable { hashing, signature, places } => {
            let params = hashing.params()?;
            let read =
                |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
            let signature = signature.as_ref().map(read).transpose()?.unwrap_or_default();
            for place in places {
                let place = TargetPath::parse(place)?;
                on(app, &place, WHAT, true, |app, fs, ino| {
                    let enabled = fs.enable_verity(app.cx, ino, &params, &signature);
                    enabled.map(drop).map_err(|errno| refused(&place, errno))
                })?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Measure { places } => {
            for place in places {
                let place = TargetPath::parse(place)?;
                let found = on(app, &place, WHAT, false, |app, fs, ino| {
                    fs.verity(app.cx, ino).map_err(at(&place))
                })?;
                let found = found.ok_or_else(|| anyhow!("{place}: no verity"))?;
                app.out.line(format!("{} {place}", found.digest_text()))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Digest { hashing, compact, places } => {
            let params = hashing.params()?;
            for place in places {
                let text = match Path::new(place).is_file() {
                    true => of_host_file(Path::new(place), &params)?,
                    false => of_place(app, &TargetPath::parse(place)?, &params)?,
                }
                .digest_text();
                let digits = text.split_once(':').map_or("", |(_, digits)| digits);
                match compact {
                    true => app.out.line(digits)?,
                    false => app.out.line(format!("{text} {}", place.display()))?,
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Verify { places } => {
            let mut sound = true;
            for place in places {
                sound &= verify(app, &TargetPath::parse(place)?)?;
            }
            Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn refused(place: &TargetPath, errno: Errno) -> anyhow::Error {
    let hint = match errno {
        Errno::EEXIST => "it has verity already",
        Errno::EINVAL => "no regular file, or blocks larger than those of the file system",
        Errno::EOPNOTSUPP => {
            "it has no extents, or the file system not the feature verity: `iopath mkfs -O verity`"
        }
        other => return at(place)(other),
    };
    anyhow!("{place}: {hint}")
}

fn described(params: &VerityParams, data_size: u64, tree: verity::Tree) -> Descriptor {
    let (params, root_hash) = (params.clone(), tree.root_hash);
    Descriptor { params, data_size, root_hash, signature: Vec::new() }
}

fn of_host_file(path: &Path, params: &VerityParams) -> Result<Descriptor> {
    let shown = || path.display().to_string();
    let file = std::fs::File::open(path).with_context(shown)?;
    let size = file.metadata().with_context(shown)?.len();
    let mut file = std::io::BufReader::with_capacity(STEP, file);
    let tree = verity::build(params, size, |part| file.read_exact(part)).with_context(shown)?;
    Ok(described(params, size, tree))
}

fn of_place(app: &mut App, place: &TargetPath, params: &VerityParams) -> Result<Descriptor> {
    on(app, place, "digests of verity", false, |app, fs, ino| {
        let size = fs.getattr(app.cx, ino).map_err(at(place))?.size;
        let mut at_byte = 0;
        let tree = verity::build(params, size, |part| {
            let count = fs.read(app.cx, ino, at_byte, part)?;
            at_byte += count as u64;
            if count == part.len() { Ok(()) } else { Err(Errno::EIO) }
        });
        Ok(described(params, size, tree.map_err(at(place))?))
    })
}

/// Reads a file from end to end; false where it has no verity or differs.
fn verify(app: &mut App, place: &TargetPath) -> Result<bool> {
    on(app, place, WHAT, false, |app, fs, ino| {
        let Some(found) = fs.verity(app.cx, ino).map_err(at(place))? else {
            app.out.note(format!("{place}: no verity"));
            return Ok(false);
        };
        match read_all(app, fs, ino) {
            Ok(()) => {
                app.out.line(format!("{} {place}", found.digest_text()))?;
                Ok(true)
            }
            Err(errno) => {
                let why = fs.read_error().unwrap_or_else(|| errno.to_string());
                app.out.note(format!("{place}: {why}"));
                Ok(false)
            }
        }
    })
}

fn read_all(app: &mut App, fs: &Arc<Ext4>, ino: Ino) -> Result<(), Errno> {
    let (mut bytes, mut at_byte) = (vec![0; STEP], 0);
    loop {
        match fs.read(app.cx, ino, at_byte, &mut bytes)? {
            0 => return Ok(()),
            count => at_byte += count as u64,
        }
    }
}
