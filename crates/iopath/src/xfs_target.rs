//! Targets that hold XFS: what `mkfs` and `info` say of them.

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use xfs::format::features::Access;
use xfs::format::{At, Features, Geometry, RawSuper};

use crate::app::App;
use crate::storage::{Storage, uuid_text};
use crate::target::Target;
use crate::text;

/// What mkfs has made, as keys and values, and as a line.
pub fn describe_made(target: &Target, report: &xfs::MkfsReport) -> (Value, String) {
    let geometry = &report.geometry;
    let size = geometry.blocks_count() * u64::from(geometry.block_size);
    let features = report.features.to_string();
    let facts = json!({
        "target": target.to_string(),
        "size": size,
        "block_size": geometry.block_size,
        "blocks": geometry.blocks_count(),
        "groups": geometry.ag_count(),
        "log_blocks": geometry.log_blocks,
        "uuid": uuid_text(&geometry.uuid),
        "features": features.split(' ').collect::<Vec<_>>(),
    });
    let line = format!(
        "{target}: {}, {} blocks of {} bytes in {} groups, log of {} blocks, UUID {}",
        text::size(size),
        geometry.blocks_count(),
        geometry.block_size,
        geometry.ag_count(),
        geometry.log_blocks,
        uuid_text(&geometry.uuid)
    );
    (facts, line)
}

/// What the superblock says, as keys and values for `info`.
///
/// # Errors
/// The device failed or is too short.
pub fn xfs_facts(app: &mut App, storage: &Storage) -> Result<Vec<(&'static str, Value)>> {
    let start = storage.start(app, 32 << 10)?;
    let target = &storage.target;
    let raw = RawSuper::view(&start).ok_or_else(|| anyhow!("{target}: too short for XFS"))?;
    let features = Features::new(raw);
    let (access, reasons) = features.access();
    let geometry = Geometry::parse(&start, At::Super(0));
    let access = match (access, &geometry) {
        (Access::Refused, _) | (_, Err(_)) => "refused",
        (Access::ReadOnly, _) => "read-only",
        (Access::ReadWrite, _) => "read-write",
    };
    let mut obstacles: Vec<String> = reasons.iter().map(|reason| reason.to_string()).collect();
    obstacles.extend(geometry.as_ref().err().map(|corrupt| corrupt.to_string()));
    let shift = u32::from(raw.sb_dirblklog);
    let state = match &geometry {
        Ok(geometry) if geometry.log_start.0 == 0 => json!("its log is on another device"),
        Ok(geometry) => match xfs::log::recovery::find(
            app.cx,
            &storage.queue,
            xfs::log::LogGeometry::of(geometry),
        ) {
            Ok(head) if head.clean => json!("clean"),
            Ok(_) => json!("in use, or its log must be replayed (iopath replay)"),
            Err(error) => json!(format!("its log is damaged: {error}")),
        },
        Err(_) => Value::Null,
    };
    let realtime = match raw.sb_rblocks.get() {
        0 => Value::Null,
        blocks => json!({
            "blocks": blocks,
            "extent_blocks": raw.sb_rextsize.get(),
            "extents_free": raw.sb_frextents.get(),
        }),
    };
    Ok(vec![
        ("label", json!(text::escape(raw.label()))),
        ("uuid", json!(uuid_text(&raw.sb_uuid))),
        ("state", state),
        ("block_size", json!(raw.sb_blocksize.get())),
        ("blocks", json!(raw.sb_dblocks.get())),
        ("blocks_free", json!(raw.sb_fdblocks.get())),
        ("inodes", json!(raw.sb_icount.get())),
        ("inodes_free", json!(raw.sb_ifree.get())),
        ("inode_size", json!(raw.sb_inodesize.get())),
        ("sector_size", json!(raw.sb_sectsize.get())),
        ("directory_block_size", json!(u64::from(raw.sb_blocksize.get()) << shift.min(16))),
        ("groups", json!(raw.sb_agcount.get())),
        ("blocks_per_group", json!(raw.sb_agblocks.get())),
        ("log_blocks", json!(raw.sb_logblocks.get())),
        ("realtime", realtime),
        ("features", features.to_string().split(' ').map(|name| json!(name)).collect()),
        ("access", json!(access)),
        ("obstacles", json!(obstacles)),
    ])
}
