//! `encrypt`: policies of encrypted directories of ext4.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base::Ino;
use clap::{Args, Subcommand, ValueEnum};
use ext4::Ext4;
use fscrypt::{IvMethod, KeyName, Mode, Policy};
use serde_json::json;

use crate::app::{App, at};
use crate::session::{self, Session};
use crate::storage::{Known, Storage};
use crate::target::TargetPath;

/// Encrypt an empty directory of an ext4 image, or show the policy of one
///
/// With its key (`--key FILE`, on every command) names and contents below it can be read and
/// written. Without the key, names are shown in their encrypted form and can only be removed.
#[derive(Args)]
#[command(after_help = "Examples:
  head -c 64 /dev/urandom > my.key
  iopath mkfs -O encrypt --size 1G disk.img
  iopath mkdir disk.img:/secret
  iopath encrypt set --key my.key disk.img:/secret
  iopath cp -a --key my.key notes disk.img:/secret/
  iopath encrypt show disk.img:/secret
  iopath encrypt id --key my.key")]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

/// What other file systems have not.
const WHAT: &str = "encrypted directories";

#[derive(Subcommand)]
enum Action {
    /// Set the policy of an empty directory, with the one key that is given
    Set {
        /// TARGET:/directory
        place: OsString,
        /// Version of the policy
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
        policy_version: u8,
        /// Ciphers of contents and names
        #[arg(long, value_enum, default_value_t = Ciphers::Aes256)]
        ciphers: Ciphers,
        /// Pad names to a multiple of 4, 8, 16 or 32 bytes
        #[arg(long, default_value_t = 32, value_parser = padding)]
        padding: usize,
        /// How initialization vectors are made
        #[arg(long, value_enum, default_value_t = Iv::PerFile)]
        iv: Iv,
    },
    /// Show the policy of a file or directory; exit status 1 if it has none
    Show {
        /// TARGET:/path
        place: OsString,
    },
    /// Show by which names policies know the keys that are given
    Id,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ciphers {
    /// AES-256-XTS and AES-256-CTS
    Aes256,
    /// AES-256-XTS and AES-256-HCTR2
    Hctr2,
    /// AES-128-CBC-ESSIV and AES-128-CTS
    Aes128,
    /// Adiantum
    Adiantum,
}

impl Ciphers {
    fn modes(self) -> (Mode, Mode) {
        match self {
            Ciphers::Aes256 => (Mode::Aes256Xts, Mode::Aes256Cts),
            Ciphers::Hctr2 => (Mode::Aes256Xts, Mode::Aes256Hctr2),
            Ciphers::Aes128 => (Mode::Aes128Cbc, Mode::Aes128Cts),
            Ciphers::Adiantum => (Mode::Adiantum, Mode::Adiantum),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Iv {
    /// A key for each file
    PerFile,
    /// DIRECT_KEY; Adiantum only
    DirectKey,
    /// IV_INO_LBLK_64
    #[value(name = "ino-lblk-64")]
    InoLblk64,
    /// IV_INO_LBLK_32
    #[value(name = "ino-lblk-32")]
    InoLblk32,
}

fn padding(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes @ (4 | 8 | 16 | 32)) => Ok(bytes),
        _ => Err("known are 4, 8, 16 and 32".into()),
    }
}

/// Runs `encrypt`.
///
/// # Errors
/// The image cannot be opened or has no encryption; no key; the directory is not empty.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    match &options.action {
        Action::Set { place, policy_version, ciphers, padding, iv } => {
            let [key] = app.options.key.as_slice() else {
                bail!("a policy has one key: give one `--key FILE`")
            };
            let name = match policy_version {
                1 => KeyName::Descriptor(key.descriptor()),
                _ => KeyName::Identifier(key.identifier()),
            };
            let (contents, names) = ciphers.modes();
            let iv = match iv {
                Iv::PerFile => IvMethod::PerFileKey,
                Iv::DirectKey => IvMethod::DirectKey,
                Iv::InoLblk64 => IvMethod::InoLblk64,
                Iv::InoLblk32 => IvMethod::InoLblk32,
            };
            let padding = *padding;
            let policy = Policy { key: name, contents, names, padding, iv, data_unit_bits: None };
            policy.check().context("this policy")?;
            let place = TargetPath::parse(place)?;
            on(app, &place, WHAT, true, |app, fs, ino| {
                fs.encrypt_directory(app.cx, ino, policy).map_err(at(&place))
            })?;
            app.out.note(format!("{place} is encrypted by key {name}"));
            Ok(ExitCode::SUCCESS)
        }
        Action::Show { place } => {
            let place = TargetPath::parse(place)?;
            let policy = on(app, &place, WHAT, false, |app, fs, ino| {
                fs.encryption_policy(app.cx, ino).map_err(at(&place))
            })?;
            show(app, &place, policy)
        }
        Action::Id => {
            for key in app.options.key.clone() {
                let identifier = KeyName::Identifier(key.identifier()).to_string();
                let descriptor = KeyName::Descriptor(key.descriptor()).to_string();
                match app.out.json {
                    true => app
                        .out
                        .document(&json!({ "identifier": identifier, "descriptor": descriptor }))?,
                    false => app.out.line(format!("{identifier} {descriptor}"))?,
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn show(app: &mut App, place: &TargetPath, policy: Option<Policy>) -> Result<ExitCode> {
    let Some(policy) = policy else {
        app.out.note(format!("{place} is not encrypted"));
        return Ok(ExitCode::FAILURE);
    };
    let Policy { key, contents, names, padding, iv, data_unit_bits } = policy;
    let version = if matches!(key, KeyName::Descriptor(_)) { 1 } else { 2 };
    let (contents, names, iv) = (format!("{contents:?}"), format!("{names:?}"), format!("{iv:?}"));
    let unit = data_unit_bits.map(|bits| 1u64 << bits);
    if app.out.json {
        app.out.document(&json!({
            "version": version, "key": key.to_string(), "contents": contents, "names": names,
            "padding": padding, "iv": iv, "data_unit_bytes": unit,
        }))?;
    } else {
        app.out.line(format!("policy version  {version}"))?;
        app.out.line(format!("key             {key}"))?;
        app.out.line(format!("contents        {contents}"))?;
        app.out.line(format!("names           {names}, padded to {padding} bytes"))?;
        app.out.line(format!("vectors         {iv}"))?;
        if let Some(unit) = unit {
            app.out.line(format!("data units      {unit} bytes"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Mounts an ext4 image, which alone can have `what`, works on what a place names, and unmounts.
pub(super) fn on<T>(
    app: &mut App,
    place: &TargetPath,
    what: &str,
    write: bool,
    work: impl FnOnce(&mut App, &Arc<Ext4>, Ino) -> Result<T>,
) -> Result<T> {
    let storage = Storage::open_to_use(app, &place.target, write)?;
    if storage.must_be_known(app)? != Known::Ext {
        bail!("{}: only ext4 has {what} here", place.target);
    }
    let fs = session::mount_ext(app, &storage, write)?;
    let session = Session::on(place.target.clone(), fs.clone());
    let result = session.find(app, &place.path, false);
    let result = result.and_then(|attr| work(app, &fs, attr.ino));
    let closed = session::close(app, session);
    let value = result?;
    closed?;
    Ok(value)
}
