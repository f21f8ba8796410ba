//! `push`: changes of an image on a server become the image.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use crate::app::App;
use crate::target::TargetPath;
use crate::{inside, text};

/// Replace an image on S3 by its overlay
#[derive(Args)]
#[command(after_help = "\
With --overlay FILE every command writes to an image on a server: the changes go to FILE, a qcow2
image, and the object stays as it is. `push` sends the parts that differ; the store copies the
others. If the object has changed since FILE was begun, that is an error, and nothing is replaced.
The object keeps its metadata, its tags and its access list. Afterwards FILE is removed.

Examples:
  iopath --overlay w.qcow2 cp hosts s3://bucket/disk.img:/etc/hosts
  iopath --overlay w.qcow2 cat s3://bucket/disk.img:/etc/hosts
  iopath --overlay w.qcow2 push s3://bucket/disk.img")]
pub struct Options {
    /// The image: s3://BUCKET/KEY
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Give the object the metadata and the access list of a new one, not those that it has
    #[arg(long)]
    new_properties: bool,
}

/// Runs `push`.
///
/// # Errors
/// There is no overlay, the object has changed, or the store refuses.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let target = TargetPath::parse(&options.target)?.target;
    let url = target.remote_url().filter(|url| url.starts_with("s3://"));
    let url = url.with_context(|| format!("{target}: an image s3://BUCKET/KEY is replaced"))?;
    let (sent, copied) = inside::push(app, &target, url, options.new_properties)?;
    if app.out.json {
        let target = target.to_string();
        let line = json!({ "target": target, "sent": sent, "copied": copied });
        app.out.document(&line)?;
    } else {
        let (sent, copied) = (text::size(sent), text::size(copied));
        app.out.line(format!("{target}: {sent} sent, {copied} copied by the store"))?;
    }
    Ok(ExitCode::SUCCESS)
}
