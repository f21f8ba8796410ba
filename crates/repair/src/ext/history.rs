//! Older copies of blocks: what the journal still holds of past transactions.
//!
//! Every change of metadata went through the log, so the newest copy of a block in it is the last
//! state of that block, unless the file system was written without its journal. A copy is only used
//! where the block itself is damaged, and only if it is sound.

use std::collections::BTreeMap;

use block::DeviceError;
use jbd2::format::{self, BlockType, Header, Layout, Superblock};

use super::Fs;

/// Copies of one block that are looked at, the newest first.
const COPIES_MAX: usize = 64;

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug)]
struct Logged {
    sequence: u32,
    /// Where it lies on the device.
    place: u64,
    /// Its first word was replaced, since it looked like the journal's magic number.
    escaped: bool,
}

/// The copies that the journal holds, by block.
#[derive(Default)]
pub struct History {
    copies: BTreeMap<u64, Vec<Logged>>,
}

impl Fs<'_> {
    /// All that is known of a block, the newest first, each with its transaction: as it is, the
    /// copies of the log, and what lies in its place where the log would replace it. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn versions(&mut self, block: u64) -> Result<Vec<(Vec<u8>, u32)>, DeviceError> {
        self.read_history_once()?;
        let mut versions = vec![(self.view.read(block)?, u32::MAX)];
        let known = self.history.as_ref().and_then(|history| history.copies.get(&block));
        for copy in known.cloned().unwrap_or_default() {
            versions.push((self.logged(copy)?, copy.sequence));
        }
        versions.push((self.view.original(block)?, 0));
        versions.dedup_by(|later, earlier| later.0 == earlier.0);
        Ok(versions)
    }

    /// The content of a copy in the log.
    fn logged(&mut self, copy: Logged) -> Result<Vec<u8>, DeviceError> {
        let mut content = self.view.original(copy.place)?;
        if copy.escaped {
            content[..4].copy_from_slice(&format::MAGIC.to_be_bytes());
        }
        Ok(content)
    }

    fn read_history_once(&mut self) -> Result<(), DeviceError> {
        if self.history.is_none() {
            // The journal's own map may be damaged: then there is nothing to ask.
            self.history = Some(History::default());
            self.history = Some(self.read_history()?);
        }
        Ok(())
    }

    /// The newest copy of a block that is sound, and the transaction that it is of. Parks.
    ///
    /// # Errors
    /// The device's.
    pub fn old_copy(
        &mut self,
        block: u64,
        sound: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<(Vec<u8>, u32)>, DeviceError> {
        self.read_history_once()?;
        let known = self.history.as_ref().and_then(|history| history.copies.get(&block));
        for copy in known.cloned().unwrap_or_default() {
            let content = self.logged(copy)?;
            if sound(&content) {
                return Ok(Some((content, copy.sequence)));
            }
        }
        Ok(None)
    }

    /// Reads the whole log, whatever of it is still valid for a replay.
    fn read_history(&mut self) -> Result<History, DeviceError> {
        let mut history = History::default();
        let ino = self.g.journal_ino;
        if ino == 0 || ino > self.g.inodes_count {
            return Ok(history);
        }
        let values = self.values(ino)?;
        let Some(map) = self.whole_file(ino, &values)? else { return Ok(history) };
        let blocks: Vec<u64> =
            map.runs.iter().flat_map(|run| run.start..run.start + run.len).collect();
        let first = self.view.original(blocks[0])?;
        let Ok(log) = Superblock::parse(&first) else { return Ok(history) };
        let layout = Layout::new(&log);
        let (start, end) = (log.first as usize, (log.log_end() as usize).min(blocks.len()));
        let mut at = start;
        while at < end {
            let content = self.view.original(blocks[at])?;
            let descriptor = Header::parse(&content)
                .filter(|header| header.kind == Ok(BlockType::Descriptor))
                .filter(|_| layout.verify_tail(&content).is_ok());
            let Some(Header { sequence, .. }) = descriptor else {
                at += 1;
                continue;
            };
            let tags = format::descriptor::parse(&layout, &content);
            for (index, tag) in tags.iter().enumerate().take(end - start) {
                let place = blocks[start + (at + 1 + index - start) % (end - start)];
                let logged = self.view.original(place)?;
                if tag.verify(&layout, sequence, &logged) {
                    let copy = Logged { sequence, place, escaped: tag.escaped };
                    history.copies.entry(tag.block).or_default().push(copy);
                }
            }
            at += 1;
        }
        for copies in history.copies.values_mut() {
            copies.sort_by_key(|copy| std::cmp::Reverse(copy.sequence));
            copies.truncate(COPIES_MAX);
        }
        Ok(history)
    }
}
