//! Blocks that describe themselves: read, one wrong byte put right, written.

use base::{FsBlock, Sector};
use block::DeviceError;
use xfs::Rule;
use xfs::format::{AgBlock, At, Expect, Kind, verifier};

use super::lsn::Place;
use super::{Fs, safe};
use crate::restore;

/// The largest block of which one wrong byte is looked for.
const RESTORE_MAX: usize = 4096;

/// `bytes` with one byte put right, if that makes it a sound block of one of these kinds.
pub fn restored(kinds: &[Kind], bytes: &[u8], expect: &Expect, at: At) -> Option<(Kind, Vec<u8>)> {
    if bytes.len() > RESTORE_MAX || bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    let mut found = None;
    for &kind in kinds {
        let sum = |bytes: &[u8]| verifier::checksum(kind, bytes);
        let stored = |bytes: &[u8]| verifier::stored_checksum(kind, bytes);
        let fixed = restore::one_byte(bytes, sum, stored)
            .filter(|fixed| verifier::verify(kind, fixed, expect, at).is_ok());
        if let Some(fixed) = fixed {
            if found.is_some() {
                return None;
            }
            found = Some((kind, fixed));
        }
    }
    found
}

impl Fs<'_> {
    /// Where a block of the file system lies on the device, in blocks.
    pub fn linear(&self, block: FsBlock) -> u64 {
        self.g.linear(self.g.split(block))
    }

    /// Reads runs of blocks, one behind the other.
    pub fn read_runs(&mut self, runs: &[(FsBlock, u32)]) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::new();
        for &(start, count) in runs {
            let first = self.linear(start);
            for index in 0..u64::from(count) {
                bytes.extend_from_slice(&self.view.read(first + index)?);
            }
        }
        Ok(bytes)
    }

    /// Writes runs of blocks, one behind the other.
    pub fn write_runs(&mut self, runs: &[(FsBlock, u32)], bytes: &[u8]) {
        let mut blocks = bytes.chunks_exact(self.g.block_size as usize);
        for &(start, count) in runs {
            let first = self.linear(start);
            for index in 0..u64::from(count) {
                self.view.write(first + index, blocks.next().expect("as many blocks as runs have"));
            }
        }
    }

    /// Reads a block of metadata of one of these kinds; if one byte of it is wrong, it is put
    /// right. None if it is not sound.
    pub fn meta(
        &mut self,
        runs: &[(FsBlock, u32)],
        kinds: &[Kind],
        owner: u64,
        at: At,
    ) -> Result<Option<(Kind, Vec<u8>)>, DeviceError> {
        let bytes = self.read_runs(runs)?;
        let expect = self.g.expect(self.g.sector(runs[0].0), Some(owner));
        let sound = kinds.iter().find(|&&kind| verifier::verify(kind, &bytes, &expect, at).is_ok());
        if let Some(&kind) = sound {
            self.note_lsn(kind, &bytes, at, || Place::Blocks(runs.to_vec()));
            return Ok(Some((kind, bytes)));
        }
        let Some((kind, fixed)) = restored(kinds, &bytes, &expect, at) else {
            return self.stray_content(runs, kinds, &expect, at);
        };
        self.write_runs(runs, &fixed);
        self.note_mended(kind, at);
        Ok(Some((kind, fixed)))
    }

    /// A block of metadata that lies in the place of another one.
    fn stray_content(
        &mut self,
        runs: &[(FsBlock, u32)],
        kinds: &[Kind],
        expect: &Expect,
        at: At,
    ) -> Result<Option<(Kind, Vec<u8>)>, DeviceError> {
        let here = self.linear(runs[0].0);
        let fits = |bytes: &[u8]| {
            kinds.iter().copied().find(|&kind| verifier::verify(kind, bytes, expect, at).is_ok())
        };
        let old = self.read_runs(runs)?;
        let stray = self.strays.get(&here).filter(|stray| stray.len() == old.len());
        let found = stray.and_then(|stray| Some((fits(stray)?, stray.clone())));
        self.notice_stray(here, &old);
        let Some((kind, bytes)) = found else { return Ok(None) };
        self.write_runs(runs, &bytes);
        self.note_moved(at);
        Ok(Some((kind, bytes)))
    }

    /// As [`Fs::meta`], for a block that its group owns.
    pub fn meta_ag(&mut self, place: AgBlock, kind: Kind) -> Result<Option<Vec<u8>>, DeviceError> {
        let at = At::AgBlock(place.ag, place.block);
        let runs = [(self.g.join(place), 1)];
        Ok(self.meta(&runs, &[kind], place.ag.into(), at)?.map(|(_, data)| data))
    }

    /// Reads a header of a group; if one byte is wrong, it is put right. The sector as it is, and
    /// whether it is sound.
    pub fn header(
        &mut self,
        sector: Sector,
        kind: Kind,
        at: At,
    ) -> Result<(Vec<u8>, bool), DeviceError> {
        let bytes = self.view.read_bytes(sector.bytes(), self.g.sector_size as usize)?;
        let expect = self.g.expect(sector, None);
        if verifier::verify(kind, &bytes, &expect, at).is_ok() {
            self.note_lsn(kind, &bytes, at, || Place::Header(sector));
            return Ok((bytes, true));
        }
        let Some((_, fixed)) = restored(&[kind], &bytes, &expect, at) else {
            let here = sector.0 / self.g.block_sectors();
            let whole = self.view.read(here)?;
            self.notice_stray(here, &whole);
            return Ok((bytes, false));
        };
        self.view.write_bytes(sector.bytes(), &fixed)?;
        self.note_mended(kind, at);
        Ok((fixed, true))
    }

    /// Adds the finding of a byte that was put right.
    pub fn note_mended(&mut self, kind: Kind, at: At) {
        let detail = format!("{}: one byte does not fit the checksum", kind.name());
        self.note(safe(Rule::Checksum, at, detail, "put that byte right"));
    }
}
