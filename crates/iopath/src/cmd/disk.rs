//! `disk`: whole disks, with a partition table.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use container::Format;
use serde_json::json;

use crate::app::App;
use crate::disk::{self, Plan};
use crate::{storage, text};

/// Make a disk with a partition table from a plan
#[derive(Args)]
#[command(after_help = "\
The name of DISK says its format: .qcow2, .vhd (fixed, for Azure), .simg (Android sparse),
.zst (seekable); else a raw image with holes. It takes its name when it is complete.

A plan:
  size = \"4G\"                           # what the partitions need, without
  [[partition]]
  name = \"esp\"
  type = \"esp\"
  format = \"vfat\"
  source = \"esp\"                         # a directory
  [[partition]]
  name = \"root\"
  type = \"root\"
  format = \"ext4\"
  source = \"rootfs.tar.zst\"              # as mkfs -d
  size = \"rest\"

Examples:
  iopath disk create disk.img plan.toml
  SOURCE_DATE_EPOCH=0 iopath disk create disk.qcow2 plan.toml
  iopath info disk.img")]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a disk
    #[command(after_help = "Example: iopath disk create disk.img plan.toml")]
    Create(Create),
}

#[derive(Args)]
struct Create {
    /// The disk to make
    #[arg(value_name = "DISK")]
    disk: PathBuf,
    /// The plan of its content
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Format, whatever the name: raw, qcow2, vhd, android-sparse or zstd
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Replace a file that exists
    #[arg(short = 'F', long)]
    force: bool,
}

/// Runs `disk`.
///
/// # Errors
/// What of the plan is wrong or does not fit; a file exists already.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let What::Create(options) = &options.what;
    let path = &options.disk;
    let shown = path.display();
    if path.exists() {
        if !path.is_file() {
            bail!("{shown}: is no file; write a raw image there with dd");
        }
        if !options.force && path.metadata()?.len() > 0 {
            bail!("{shown}: exists and would be lost; give --force to replace it");
        }
    }
    let plan = Plan::read(&options.plan)?;
    let format = options.format.unwrap_or_else(|| container::write::format_of_name(path));
    let made = disk::create(app, &plan, path, format)?;
    if app.out.json {
        let part = |(part, index): (&disk::Part, usize)| {
            json!({
                "number": index,
                "offset": part.offset,
                "size": part.bytes,
                "uuid": storage::uuid_text(&part.uuid),
            })
        };
        let parts: Vec<_> = made.parts.iter().zip(1..).map(part).collect();
        app.out.document(&json!({
            "target": shown.to_string(),
            "format": format.name(),
            "size": made.bytes,
            "uuid": storage::uuid_text(&made.uuid),
            "partitions": parts,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let count = made.parts.len();
    let size = text::size(made.bytes);
    app.out.note(format!("{shown}: {format}, a disk of {size} with {count} partitions"));
    Ok(ExitCode::SUCCESS)
}
