//! The value of `-J`: the size of a journal, or the device that it is on.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use ext4::format::RawSuper;
use ext4::format::features::Incompat;
use ext4::{ExternalJournal, JournalDevice};

use crate::app::App;
use crate::storage::{self, Storage};
use crate::target::Target;
use crate::text;

/// Bytes of the unit of mke2fs's `size=`.
const MIB: u64 = 1 << 20;

/// What `-J` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalArg {
    /// So many bytes: `SIZE`, or `size=MEBIBYTES` as for mke2fs.
    Size(u64),
    /// `device=TARGET`, `device=UUID=..` or `device=LABEL=..`.
    Device(String),
}

impl FromStr for JournalArg {
    type Err = String;

    fn from_str(word: &str) -> Result<JournalArg, String> {
        match word.split_once('=') {
            Some(("device", name)) if !name.is_empty() => Ok(JournalArg::Device(name.into())),
            Some(("size", size)) => match size.parse::<u64>().ok().and_then(|n| n.checked_mul(MIB))
            {
                Some(bytes) => Ok(JournalArg::Size(bytes)),
                None => text::parse_size(size).map(JournalArg::Size),
            },
            Some((key, _)) => Err(format!("{key}= is not size= or device=")),
            None => text::parse_size(word).map(JournalArg::Size),
        }
    }
}

/// An external journal that a file system may log to.
pub struct FreeJournal {
    /// Its device, for writing.
    pub device: JournalDevice,
    /// What the superblock of the file system says of it.
    pub facts: ExternalJournal,
}

impl JournalArg {
    /// Bytes of a journal inside.
    pub fn size(&self) -> Option<u64> {
        match self {
            JournalArg::Size(bytes) => Some(*bytes),
            JournalArg::Device(_) => None,
        }
    }

    /// Opens the device, where one is named, for a file system with this UUID, if it is known.
    ///
    /// # Errors
    /// It is no external journal, or that of another file system; it cannot be opened.
    pub fn open(&self, app: &mut App, uuid: Option<[u8; 16]>) -> Result<Option<FreeJournal>> {
        let JournalArg::Device(name) = self else { return Ok(None) };
        let path = match name.split_once('=') {
            Some((tag @ ("UUID" | "LABEL"), value)) => find(tag, value)?,
            _ => PathBuf::from(name),
        };
        let target = Target::parse(path.as_os_str())?;
        let storage = Storage::open(app, &target, true)?;
        let device = JournalDevice(storage.queue);
        let facts = match device.free_for(app.cx, uuid) {
            Ok(facts) => facts,
            Err(error) => bail!("{target}: journal: {error}"),
        };
        // Linux encodes it in 32 bits as libc does, up to 4,096 drivers.
        let number = match target.path.metadata() {
            Ok(meta) if meta.file_type().is_block_device() && target.partition.is_none() => {
                meta.rdev() as u32
            }
            _ => 0,
        };
        let (uuid, block_size) = (facts.uuid, facts.block_size);
        Ok(Some(FreeJournal { device, facts: ExternalJournal { uuid, block_size, number } }))
    }
}

/// The block devices of the host.
///
/// # Errors
/// The kernel does not list them.
pub fn block_devices() -> io::Result<Vec<PathBuf>> {
    let device = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry?.file_name().to_string_lossy().replace('!', "/");
        Ok(PathBuf::from("/dev").join(name))
    };
    std::fs::read_dir("/sys/class/block")?.map(device).collect()
}

/// The block device with the external journal of this UUID or label.
fn find(tag: &str, value: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for path in block_devices()? {
        let mut start = [0; 2048];
        let read = File::open(&path).and_then(|mut file| file.read_exact(&mut start));
        let Some(raw) = RawSuper::read(&start[1024..]).filter(|_| read.is_ok()) else { continue };
        if !raw.features().incompat.contains(Incompat::JOURNAL_DEV) {
            continue;
        }
        let fits = match tag {
            "UUID" => storage::uuid_text(&raw.s_uuid).eq_ignore_ascii_case(value),
            _ => raw.label() == value.as_bytes(),
        };
        if fits {
            found.push(path);
        }
    }
    match &found[..] {
        [path] => Ok(path.clone()),
        [] => bail!("{tag}={value}: no block device holds such an external journal"),
        list => bail!("{tag}={value}: more than one device holds it: {list:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_has_a_size_or_a_device() {
        let parse = |word: &str| word.parse::<JournalArg>();
        assert_eq!(parse("64M"), Ok(JournalArg::Size(64 * MIB)));
        assert_eq!(parse("size=64"), Ok(JournalArg::Size(64 * MIB)));
        assert_eq!(parse("size=8K"), Ok(JournalArg::Size(8192)));
        assert_eq!(parse("device=LABEL=a"), Ok(JournalArg::Device("LABEL=a".into())));
        for word in ["device=", "fast_commit_size=3", "x"] {
            assert!(parse(word).is_err(), "{word}");
        }
    }
}
