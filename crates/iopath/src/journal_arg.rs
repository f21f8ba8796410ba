//! The value of `-J`: the size of a journal, or the device that it is on.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use ext4::format::RawSuper;
use ext4::format::features::Incompat;
use ext4::mkfs::Span;
use ext4::{ExternalJournal, JournalDevice};

use crate::app::App;
use crate::storage::{self, Storage};
use crate::target::Target;
use crate::text;

/// Bytes of the unit of mke2fs's `fast_commit_size=`.
const KIB: u64 = 1 << 10;
/// Bytes of the unit of mke2fs's `size=`.
const MIB: u64 = 1 << 20;

/// What `-J` says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalArg {
    /// So many bytes: `SIZE`, or `size=MEBIBYTES` as for mke2fs.
    size: Option<u64>,
    /// `device=TARGET`, `device=UUID=..` or `device=LABEL=..`.
    device: Option<String>,
    /// `location=`: a block, or with a unit a place in bytes.
    pub place: Option<Span>,
    /// `fast_commit_size=`, in bytes: KiB without a unit.
    pub fast_commit_size: Option<u64>,
}

impl FromStr for JournalArg {
    type Err = String;

    fn from_str(words: &str) -> Result<JournalArg, String> {
        let mut arg = JournalArg::default();
        for word in words.split(',') {
            let in_units = |text: &str, unit: u64| match text.parse::<u64>() {
                Ok(number) => number.checked_mul(unit).ok_or(format!("{text} is too large")),
                Err(_) => text::parse_size(text),
            };
            match word.split_once('=') {
                Some(("device", name)) if !name.is_empty() => arg.device = Some(name.into()),
                Some(("size", size)) => arg.size = Some(in_units(size, MIB)?),
                Some(("location", place)) => arg.place = Some(text::parse_span(place)?),
                Some(("fast_commit_size", size)) => {
                    arg.fast_commit_size = Some(in_units(size, KIB)?);
                }
                Some((key, _)) => {
                    return Err(format!(
                        "{key}= is not size=, device=, location= or fast_commit_size="
                    ));
                }
                None => arg.size = Some(text::parse_size(word)?),
            }
        }
        Ok(arg)
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
        self.size
    }

    /// Opens the device, where one is named, for a file system with this UUID, if it is known.
    ///
    /// # Errors
    /// It is no external journal, or that of another file system; it cannot be opened.
    pub fn open(&self, app: &mut App, uuid: Option<[u8; 16]>) -> Result<Option<FreeJournal>> {
        let Some(name) = &self.device else { return Ok(None) };
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
        let size = |word: &str| parse(word).expect("right").size;
        assert_eq!(size("64M"), Some(64 * MIB));
        assert_eq!(size("size=64"), Some(64 * MIB));
        assert_eq!(size("size=8K"), Some(8192));
        let words = parse("location=3M,fast_commit_size=300").expect("right");
        assert_eq!(words.place, Some(Span::Bytes(3 * MIB)));
        assert_eq!(words.fast_commit_size, Some(300 << 10));
        let device = parse("device=LABEL=a").expect("right").device;
        assert_eq!(device.as_deref(), Some("LABEL=a"));
        for word in ["device=", "blocks=3", "x"] {
            assert!(parse(word).is_err(), "{word}");
        }
    }
}
