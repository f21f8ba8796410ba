//! The snapshots that a qcow2 image keeps inside.

use std::fmt;

use crate::Error;
use crate::bytes::{be16, be32, be64, text};
use crate::error::Subject;
use crate::image::Fact;
use crate::source::{self, Source};

use super::header::Header;

/// Most snapshots, as QEMU has it.
const COUNT_MAX: u32 = 65536;
/// Bytes of all their entries.
const BYTES_MAX: u64 = 16 << 20;
/// Bytes of an entry before its texts.
const FIXED: usize = 40;

/// One snapshot.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub l1_offset: u64,
    pub l1_size: u32,
    /// Bytes of its disk, where it says so.
    pub size: Option<u64>,
    id: String,
    name: String,
    seconds: u32,
    vm_state: u64,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

impl Snapshot {
    pub fn row(&self) -> Vec<(&'static str, Fact)> {
        let mut row: Vec<(&'static str, Fact)> = vec![
            ("id", self.id.clone().into()),
            ("name", self.name.clone().into()),
            ("seconds", self.seconds.into()),
        ];
        if let Some(size) = self.size {
            row.push(("size", size.into()));
        }
        row.push(("vm_state", self.vm_state.into()));
        row
    }
}

/// Reads the table of snapshots.
pub(super) fn list(
    source: &dyn Source,
    subject: &Subject,
    header: &Header,
) -> Result<Vec<Snapshot>, Error> {
    if header.snapshots == 0 {
        return Ok(Vec::new());
    }
    let bad = |what: String| subject.damaged("table of snapshots", what);
    if header.snapshots > COUNT_MAX {
        return Err(bad(format!("{} snapshots", header.snapshots)));
    }
    if header.snapshots_offset >= source.size()
        || !header.snapshots_offset.is_multiple_of(header.cluster())
    {
        let (at, size) = (header.snapshots_offset, source.size());
        return Err(bad(format!("at byte {at}, the file has {size}")));
    }
    let most = BYTES_MAX.min(u64::from(header.snapshots) * (FIXED as u64 + 1024 + 2 * 65536));
    let bytes = source::read_some(source, header.snapshots_offset, most as usize)?;
    let (mut all, mut at) = (Vec::new(), 0);
    for index in 0..header.snapshots {
        let short = || bad(format!("snapshot {index} passes the end of the table"));
        let fixed = bytes.get(at..at + FIXED).ok_or_else(short)?;
        let (id_len, name_len) = (usize::from(be16(fixed, 12)), usize::from(be16(fixed, 14)));
        let extra_len = be32(fixed, 36) as usize;
        if extra_len > 1024 {
            return Err(bad(format!("snapshot {index} has {extra_len} bytes of extra data")));
        }
        let extra_at = at + FIXED;
        let id_at = extra_at + extra_len;
        let end = id_at + id_len + name_len;
        let rest = bytes.get(extra_at..end).ok_or_else(short)?;
        let extra = &rest[..extra_len];
        all.push(Snapshot {
            l1_offset: be64(fixed, 0),
            l1_size: be32(fixed, 8),
            size: (extra_len >= 16).then(|| be64(extra, 8)),
            id: text(&rest[extra_len..extra_len + id_len]),
            name: text(&rest[extra_len + id_len..]),
            seconds: be32(fixed, 16),
            vm_state: match extra_len >= 8 {
                true => be64(extra, 0),
                false => be32(fixed, 32).into(),
            },
        });
        at = end.next_multiple_of(8);
    }
    Ok(all)
}

/// A snapshot by its number or name; the number counts first, as with `qemu-img`.
pub(super) fn find<'a>(
    all: &'a [Snapshot],
    wanted: &str,
    subject: &Subject,
) -> Result<&'a Snapshot, Error> {
    let by_id = all.iter().find(|snapshot| snapshot.id == wanted);
    let found = by_id.or_else(|| all.iter().find(|snapshot| snapshot.name == wanted));
    found.ok_or_else(|| {
        let names: Vec<String> = all.iter().take(20).map(Snapshot::to_string).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        subject.unsupported(format!("no snapshot `{wanted}`; there are: {known}"), "")
    })
}
