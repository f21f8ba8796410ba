//! `tune`: label, UUID and features of an existing file system.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use xfs::tune::TuneOptions;

use crate::app::App;
use crate::storage::{Known, Storage};
use crate::target::TargetPath;

/// Change label, UUID and features of a file system
#[derive(Args)]
#[command(after_help = "\
Features of XFS are bigtime, nrext64 and exchange; there is no way back. Nobody may have it mounted.

Examples:
  iopath tune -L archive disk.img
  iopath tune -U random disk.img@1
  iopath tune -O bigtime,nrext64 disk.img")]
pub struct Options {
    /// Image, device or partition: TARGET
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Name of the volume, at most 12 bytes; empty for none
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// UUID, or random
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Features to turn on
    #[arg(short = 'O', value_name = "FEATURES", value_delimiter = ',')]
    features: Vec<String>,
}

/// Runs `tune`.
///
/// # Errors
/// Another format; nothing to change, or what cannot be changed; the device failed.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(&options.target)?.target;
    let uuid = match options.uuid.as_deref() {
        Some("random") => Some(app.cx.random_uuid()),
        Some(text) => Some(super::mkfs::parse_uuid(text)?),
        None => None,
    };
    let label = options.label.as_ref().map(|label| label.as_bytes().to_vec());
    // As for xfs_admin: `-O bigtime=1`.
    let features = options.features.iter().map(|name| name.trim_end_matches("=1").to_string());
    let wanted = TuneOptions { label, uuid, features: features.collect() };
    if wanted == TuneOptions::default() {
        bail!("nothing to change: give -L, -U or -O");
    }
    let storage = Storage::open(app, &target, true)?;
    if storage.must_be_known(app)? == Known::Ext {
        bail!("{target}: ext2, ext3 and ext4 are not tuned here; tune2fs does it");
    }
    let done = xfs::tune::tune(app.cx, &storage.queue, &wanted);
    done.with_context(|| target.to_string())?;
    if app.out.json {
        app.out.document(&json!({ "target": target.to_string(), "changed": true }))?;
    } else {
        app.out.line(format!("{target}: changed"))?;
    }
    Ok(ExitCode::SUCCESS)
}
