//! The undo file: what a repair changes, before and after, so that it can be finished or undone
//! whenever it was cut.
//!
//! A header of 4 KiB: magic number, state, id, size of the device, number of records, place of the
//! superblock, SHA-256 of the records, SHA-256 of the fields before, name of the target. Then the
//! records: offset and length, the old content, the new content. Numbers are little-endian. The
//! file is complete and on its disk before the first write to the image; only its state changes
//! later.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use base::{Page, Sector};
use block::{BioFlags, DeviceError, Queue};
use ext4::format::RawSuper;
use rt::{Cx, Meter};
use sha2::{Digest, Sha256};

use crate::plan::{Change, Plan};

mod xfs_mark;

/// The first eight bytes.
const MAGIC: &[u8; 8] = b"IOPUNDO1";
/// Bytes of the header.
const HEADER: usize = 4096;
/// Bytes of a record before its contents.
const RECORD: usize = 16;
/// Where the state lies.
const STATE_AT: u64 = 8;
/// The fields that the second digest covers.
const FIELDS: std::ops::Range<usize> = 16..96;
/// Where the target's name lies: its length, then its bytes.
const TARGET: std::ops::Range<usize> = 128..HEADER;
/// The longest record: a block.
const BLOCK_MAX: u64 = 64 << 10;
/// The unit that a device writes as a whole.
const SECTOR: usize = 512;
/// How the mark in a superblock begins.
const MARK: &str = "iopath repair ";

/// What was done with the file so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Complete; the image may be changed in part.
    Prepared = 1,
    /// The image holds the new content.
    Applied = 2,
    /// The image is on the way back to the old content.
    Undoing = 3,
    /// The image holds the old content.
    Undone = 4,
}

/// What keeps an undo file from being made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The file system of the undo file failed, or has no room.
    #[error("the undo file")]
    Io(#[from] io::Error),
    /// The image's device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It is no undo file, or a damaged one.
    #[error("no sound undo file: {0}")]
    Damaged(&'static str),
    /// The device has another size than the one that was repaired.
    #[error("the undo file is of a device of {expected} bytes, this one has {found}")]
    OtherDevice {
        /// Bytes of the device that was repaired.
        expected: u64,
        /// Bytes of this one.
        found: u64,
    },
    /// The image is no longer what the repair left.
    #[error("the image has changed since: the sector at byte {offset} is another one")]
    Changed {
        /// Where.
        offset: u64,
    },
    /// There is nothing to undo.
    #[error("it was undone before")]
    Done,
}

/// What is repaired.
#[derive(Clone, Copy, Debug)]
pub struct Repaired<'a> {
    /// Its name: what `undo` opens.
    pub target: &'a [u8],
    /// Bytes of its device.
    pub device_bytes: u64,
}

/// An open undo file, with its content in memory.
pub struct UndoFile {
    file: File,
    state: State,
    id: [u8; 16],
    device_bytes: u64,
    superblock: u64,
    target: Vec<u8>,
    changes: Vec<Change>,
    meter: Meter,
}

impl UndoFile {
    /// Blocks that are written are counted there.
    pub fn set_meter(&mut self, meter: Meter) {
        self.meter = meter;
    }

    /// Makes the undo file of a plan for a device; afterwards it is durable, its name included.
    /// `path` must not exist.
    ///
    /// # Errors
    /// No room for it, or it exists: nothing was changed.
    pub fn create(
        path: &Path,
        id: [u8; 16],
        of: &Repaired<'_>,
        plan: &Plan,
    ) -> Result<UndoFile, UndoError> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let made = UndoFile {
            file,
            state: State::Prepared,
            id,
            device_bytes: of.device_bytes,
            superblock: plan.superblock,
            target: of.target.to_vec(),
            changes: plan.changes.clone(),
            meter: Meter::default(),
        };
        let stored = made.store().and_then(|()| sync_parent(path));
        if let Err(error) = stored {
            // Without room the file is of no use.
            let _removed = std::fs::remove_file(path);
            return Err(error.into());
        }
        Ok(made)
    }

    fn store(&self) -> io::Result<()> {
        let mut digest = Sha256::new();
        let mut file = io::BufWriter::new(&self.file);
        file.write_all(&[0; HEADER])?;
        for change in &self.changes {
            let mut head = [0; RECORD];
            head[..8].copy_from_slice(&change.offset.to_le_bytes());
            head[8..].copy_from_slice(&(change.new.len() as u64).to_le_bytes());
            for part in [&head[..], &change.old, &change.new] {
                digest.update(part);
                file.write_all(part)?;
            }
        }
        file.flush()?;
        drop(file);
        self.file.sync_all()?;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[STATE_AT as usize] = self.state as u8;
        header[16..32].copy_from_slice(&self.id);
        header[32..40].copy_from_slice(&self.device_bytes.to_le_bytes());
        header[40..48].copy_from_slice(&(self.changes.len() as u64).to_le_bytes());
        header[48..56].copy_from_slice(&self.superblock.to_le_bytes());
        header[64..96].copy_from_slice(&digest.finalize());
        let fields = Sha256::digest(&header[FIELDS]);
        header[96..128].copy_from_slice(&fields);
        let name = &self.target;
        if let Some(place) = header[TARGET].get_mut(2..2 + name.len()) {
            place.copy_from_slice(name);
            header[TARGET.start..][..2].copy_from_slice(&(name.len() as u16).to_le_bytes());
        }
        self.write_at(0, &header)?;
        self.file.sync_all()
    }

    /// Opens an undo file and checks all of it.
    ///
    /// # Errors
    /// It cannot be read, or it is damaged.
    pub fn open(path: &Path) -> Result<UndoFile, UndoError> {
        let file = File::options().read(true).write(true).open(path)?;
        let mut reader = io::BufReader::new(&file);
        let mut header = [0; HEADER];
        reader.read_exact(&mut header).map_err(|_| UndoError::Damaged("it is too short"))?;
        if header.iter().all(|&byte| byte == 0) {
            let why = "it was cut while it was made, before anything was changed";
            return Err(UndoError::Damaged(why));
        }
        if header[..8] != *MAGIC {
            return Err(UndoError::Damaged("its first bytes are not IOPUNDO1"));
        }
        if header[96..128] != Sha256::digest(&header[FIELDS])[..] {
            return Err(UndoError::Damaged("its header does not fit its digest"));
        }
        let state = match header[STATE_AT as usize] {
            1 => State::Prepared,
            2 => State::Applied,
            3 => State::Undoing,
            4 => State::Undone,
            _ => return Err(UndoError::Damaged("its state is not known")),
        };
        let number =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let (count, superblock) = (number(40), number(48));
        let mut digest = Sha256::new();
        let mut changes = Vec::new();
        for _ in 0..count {
            changes.push(record(&mut reader, &mut digest)?);
        }
        if header[64..96] != digest.finalize()[..] {
            return Err(UndoError::Damaged("its records do not fit their digest"));
        }
        drop(reader);
        let id = header[16..32].try_into().expect("16 bytes");
        let area = &header[TARGET];
        let name = area.get(2..2 + usize::from(u16::from_le_bytes([area[0], area[1]])));
        let target = name.unwrap_or_default().to_vec();
        let device_bytes = number(32);
        let meter = Meter::default();
        Ok(UndoFile { file, state, id, device_bytes, superblock, target, changes, meter })
    }

    /// What was done so far.
    pub fn state(&self) -> State {
        self.state
    }

    /// The id, as the mark in the superblock has it.
    pub fn id(&self) -> String {
        hex(&self.id)
    }

    /// The target that was repaired, as it was named; empty where the name was too long.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// Blocks that it holds.
    pub fn blocks(&self) -> usize {
        self.changes.len()
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    fn set_state(&mut self, state: State) -> io::Result<()> {
        self.write_at(STATE_AT, &[state as u8])?;
        self.file.sync_all()?;
        self.state = state;
        Ok(())
    }

    /// The superblock's content with the mark of this repair. None where the plan leaves it alone.
    fn marked(&self) -> Option<(&Change, Vec<u8>)> {
        let change = self.changes.iter().find(|change| change.offset == self.superblock)?;
        let mut bytes = change.new.to_vec();
        let text = format!("{MARK}{}", &self.id()[..16]);
        if xfs_mark::set(&mut bytes, &text) {
            return Some((change, bytes));
        }
        let at = (ext4::format::super_block::SUPER_OFFSET - self.superblock) as usize;
        let raw = RawSuper::view_mut(bytes.get_mut(at..)?)?;
        raw.s_state.set(raw.s_state.get() | ext4::format::super_block::STATE_ERROR);
        raw.s_last_error_func = [0; 32];
        raw.s_last_error_func[..text.len()].copy_from_slice(text.as_bytes());
        raw.set_checksum();
        Some((change, bytes))
    }

    /// Compares the image with what it may hold: in each sector the old or the new content, or the
    /// mark; `strict` allows the new content only.
    fn compare(&self, cx: &mut Cx, queue: &Arc<Queue>, strict: bool) -> Result<(), UndoError> {
        let found = queue.info().bytes();
        if found != self.device_bytes {
            return Err(UndoError::OtherDevice { expected: self.device_bytes, found });
        }
        let marked = self.marked();
        for change in &self.changes {
            let there = queue.read(cx, Sector::from_bytes(change.offset), change.new.len())?;
            let mark = marked.as_ref().filter(|(owner, _)| owner.offset == change.offset);
            for (index, sector) in there.chunks(SECTOR).enumerate() {
                let part = index * SECTOR..index * SECTOR + sector.len();
                let known = sector == &change.new[part.clone()]
                    || !strict && sector == &change.old[part.clone()]
                    || !strict && mark.is_some_and(|(_, bytes)| sector == &bytes[part.clone()]);
                if !known {
                    return Err(UndoError::Changed { offset: change.offset + part.start as u64 });
                }
            }
        }
        Ok(())
    }

    /// True where the image holds a part of the new content: a repair was cut. Parks.
    ///
    /// # Errors
    /// The image is neither old nor new, or its device fails.
    pub fn is_begun(&self, cx: &mut Cx, queue: &Arc<Queue>) -> Result<bool, UndoError> {
        self.compare(cx, queue, false)?;
        for change in &self.changes {
            let there = queue.read(cx, Sector::from_bytes(change.offset), change.old.len())?;
            if there[..] != change.old[..] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the new content, or goes on where it was cut. Durable afterwards. Parks.
    ///
    /// # Errors
    /// The image is neither old nor new, or its device fails.
    pub(crate) fn write_new(&mut self, cx: &mut Cx, queue: &Arc<Queue>) -> Result<(), UndoError> {
        self.compare(cx, queue, false)?;
        self.write_all(cx, queue, "writing", |change| &change.new)?;
        Ok(self.set_state(State::Applied)?)
    }

    /// Writes the superblock with the mark, everything else, the superblock without it; a flush
    /// follows each.
    fn write_all(
        &self,
        cx: &mut Cx,
        queue: &Arc<Queue>,
        what: &'static str,
        content: fn(&Change) -> &[u8],
    ) -> Result<(), UndoError> {
        self.meter.begin(what, self.changes.len() as u64);
        if let Some((change, bytes)) = self.marked() {
            write(cx, queue, change.offset, &bytes)?;
            queue.flush(cx)?;
        }
        for last in [false, true] {
            let is_now = |change: &&Change| (change.offset == self.superblock) == last;
            for change in self.changes.iter().filter(is_now) {
                write(cx, queue, change.offset, content(change))?;
                self.meter.add(1);
            }
            queue.flush(cx)?;
        }
        Ok(())
    }

    /// Puts the old content back, byte for byte. May be repeated where it was cut. Parks.
    ///
    /// # Errors
    /// The image has changed since the repair, or its device fails.
    pub fn undo(&mut self, cx: &mut Cx, queue: &Arc<Queue>) -> Result<(), UndoError> {
        if self.state == State::Undone {
            return Err(UndoError::Done);
        }
        self.compare(cx, queue, self.state == State::Applied)?;
        self.set_state(State::Undoing)?;
        self.write_all(cx, queue, "writing what was there", |change| &change.old)?;
        Ok(self.set_state(State::Undone)?)
    }
}

/// Reads one record.
fn record(reader: &mut impl Read, digest: &mut Sha256) -> Result<Change, UndoError> {
    let short = |_| UndoError::Damaged("it ends within its records");
    let mut head = [0; RECORD];
    reader.read_exact(&mut head).map_err(short)?;
    let offset = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
    let len = u64::from_le_bytes(head[8..].try_into().expect("eight bytes"));
    if len == 0 || len > BLOCK_MAX || !len.is_multiple_of(SECTOR as u64) {
        return Err(UndoError::Damaged("a record has no length of a block"));
    }
    let mut contents = [vec![0; len as usize], vec![0; len as usize]];
    digest.update(head);
    for content in &mut contents {
        reader.read_exact(content).map_err(short)?;
        digest.update(&*content);
    }
    let [old, new] = contents.map(Vec::into_boxed_slice);
    Ok(Change { offset, old, new })
}

fn write(cx: &mut Cx, queue: &Arc<Queue>, offset: u64, content: &[u8]) -> Result<(), DeviceError> {
    let page = Page::from_slice(content);
    queue.write(cx, Sector::from_bytes(offset), page, BioFlags::empty())
}

/// Makes a new name durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The id in the mark that an unfinished repair left in the superblock. Parks.
///
/// # Errors
/// The device's.
pub fn unfinished(cx: &mut Cx, queue: &Arc<Queue>) -> Result<Option<String>, DeviceError> {
    let unit = queue.info().logical_block.max(2048) as usize;
    if queue.info().bytes() < unit as u64 {
        return Ok(None);
    }
    Ok(mark_of(&queue.read(cx, Sector(0), unit)?))
}

/// The id in the mark that an unfinished repair left in the superblock, in the first 2048 bytes of
/// a device.
pub fn mark_of(start: &[u8]) -> Option<String> {
    let of = |text: &str| text.strip_prefix(MARK).map(|id| id.trim_end_matches('\0').to_string());
    if let Some(text) = xfs_mark::get(start) {
        return of(&text).filter(|id| id.len() == 16);
    }
    let raw = RawSuper::read(start.get(1024..2048)?)?;
    let text = String::from_utf8_lossy(&raw.s_last_error_func);
    // Whoever has checked the file system since has taken the error back, and may leave the text.
    let is_set = raw.s_magic.get() == ext4::format::super_block::MAGIC
        && raw.s_state.get() & ext4::format::super_block::STATE_ERROR != 0;
    of(&text).filter(|id| id.len() == 16 && is_set)
}
