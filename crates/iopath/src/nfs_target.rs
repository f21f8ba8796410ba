//! Targets that are exports of NFS servers.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use base::Nanos;
use nfs::{Mode, NfsClient, NfsOptions, Url};
use serde_json::{Value, json};
use vfs::FileSystem;

use crate::app::{App, at};
use crate::target::Target;
use crate::text;

/// Attempts of a call before a command fails; with the waits between them about two minutes.
const ATTEMPTS: u32 = 6;
const TIMEOUT: Nanos = Nanos::from_secs(30);

/// Mounts the export that a target names; `None` where it is none.
///
/// # Errors
/// The address or one of its options is wrong, or who could not be reached or refused what.
pub fn mount(app: &mut App, target: &Target, write: bool) -> Result<Option<Arc<dyn FileSystem>>> {
    let Some(url) = target.nfs_url() else { return Ok(None) };
    let url: Url = url.parse().map_err(|error: String| anyhow!(error))?;
    let mut options = NfsOptions::with_cache(app.options.cache_size.max(1 << 20));
    options.read_only = !write;
    options.rpc.attempts = Some(ATTEMPTS);
    options.rpc.timeout = TIMEOUT;
    for (name, value) in &url.options {
        set(&mut options, name, value).map_err(|error| anyhow!("{target}: {error}"))?;
    }
    let mounted = NfsClient::mount_url(app.cx, &url, options);
    Ok(Some(mounted.map_err(|error| anyhow!("{target}: {error}"))?))
}

/// Sets an option of the address.
fn set(options: &mut NfsOptions, name: &str, value: &str) -> Result<()> {
    let size = || text::parse_size(value).map_err(|error| anyhow!("{name}={value}: {error}"));
    let small = || u32::try_from(size()?).map_err(|_| anyhow!("{name}={value}: too large"));
    match name {
        "mode" => {
            let mode = Mode::ALL.iter().find(|(mode, _)| *mode == value);
            let known = Mode::ALL.map(|(mode, _)| mode).join(", ");
            let mode = mode.ok_or_else(|| anyhow!("mode={value}: there are {known}"))?;
            options.mode = mode.1;
        }
        "rsize" => options.rsize = Some(small()?),
        "wsize" => options.wsize = Some(small()?),
        "folio" => options.folio_size = small()?,
        "readahead" => options.readahead_bytes = size()?,
        "slots" => options.rpc.slots = size()?.clamp(1, 1024),
        _ => bail!(
            "`{name}` is no option; there are mountport, nfsport, portmapport, mode, rsize, \
             wsize, folio, readahead, slots"
        ),
    }
    Ok(())
}

/// What `info` says of an export.
///
/// # Errors
/// As [`mount`].
pub fn facts(app: &mut App, target: &Target) -> Result<Vec<(&'static str, Value)>> {
    let Some(fs) = mount(app, target, false)? else { bail!("{target}: no NFS export") };
    let stat = fs.statfs(app.cx);
    let closed = fs.unmount(app.cx);
    let stat = stat.map_err(at(target))?;
    closed.map_err(at(target))?;
    let bytes = |blocks: u64| json!(blocks * u64::from(stat.block_size));
    Ok(vec![
        ("target", json!(target.to_string())),
        ("format", json!("NFS version 3")),
        ("size", bytes(stat.blocks)),
        ("free", bytes(stat.blocks_free)),
        ("available", bytes(stat.blocks_available)),
        ("inodes", json!(stat.inodes)),
        ("inodes_free", json!(stat.inodes_free)),
        ("fsid", json!(format!("{:016x}", stat.fsid))),
    ])
}
