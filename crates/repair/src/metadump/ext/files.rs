//! What an inode owns, by its kind.

use ext4::format::dir::{self, INLINE_HEAD, INLINE_RUNS};
use ext4::format::extent::{FileRun, Node};
use ext4::format::features::RoCompat;
use ext4::format::inode::{BASE_SIZE, BLOCK_AREA};
use ext4::format::verity::locate;
use ext4::format::xattr;
use ext4::format::{At, FileKind, InodeFlags, InodeValues};

use super::Dump;
use super::attributes::FILL;
use super::dirs::Drawn;
use crate::metadump::{DumpError, permute};
use crate::volume::map::has_map;

/// Where `i_block` lies in a slot.
const BLOCK_AT: usize = 40;
/// Where `i_atime` lies: of a value's inode it holds the hash.
const ATIME_AT: usize = 8;

impl Dump<'_> {
    /// Passes on what an inode owns, and cleans `i_block`.
    pub fn owned(
        &mut self,
        ino: u32,
        slot: &mut [u8],
        values: &InodeValues,
    ) -> Result<(), DumpError> {
        if values.flags.contains(InodeFlags::INLINE_DATA) {
            self.inline(ino, slot, values);
            return Ok(());
        }
        if values.is_fast_symlink() {
            let area = &mut slot[BLOCK_AT..BLOCK_AT + BLOCK_AREA];
            let (target, rest) = area.split_at_mut(values.size as usize);
            rest.fill(0);
            if self.obscures(values) {
                permute::text(&self.out.options.key, b"target", target);
            }
            return Ok(());
        }
        if !has_map(values) {
            return Ok(());
        }
        if values.flags.contains(InodeFlags::EXTENTS) {
            clear_root(&mut slot[BLOCK_AT..BLOCK_AT + BLOCK_AREA]);
        }
        let runs = self.map(ino, values)?;
        match values.kind() {
            Some(FileKind::Directory) => self.directory(ino, values, &runs),
            Some(FileKind::Symlink) => self.target(values, &runs),
            _ if ino == self.g.journal_ino => self.journal(&runs),
            _ if self.g.quota_inos.contains(&ino) || ino == self.g.orphan_file_ino => {
                self.raw_content(&runs)
            }
            Some(FileKind::Regular) if values.flags.contains(InodeFlags::EA_INODE) => {
                self.value(slot, values, &runs)
            }
            Some(FileKind::Regular) if values.flags.contains(InodeFlags::VERITY) => {
                self.descriptor(values, &runs)
            }
            _ => Ok(()),
        }
    }

    /// Whether the target of a symbolic link is obscured: that of an encrypted one is already.
    fn obscures(&self, values: &InodeValues) -> bool {
        !self.out.keeps_names() && !values.flags.contains(InodeFlags::ENCRYPT)
    }

    /// Blocks that are metadata without names.
    fn raw_content(&mut self, runs: &[FileRun]) -> Result<(), DumpError> {
        for run in runs {
            for block in run.start..run.start + run.len {
                let data = self.view.read(block)?;
                self.put(block, &data)?;
            }
        }
        Ok(())
    }

    /// The target of a symbolic link in blocks of its own.
    fn target(&mut self, values: &InodeValues, runs: &[FileRun]) -> Result<(), DumpError> {
        let mut left = values.size.min(4096) as usize;
        for run in runs {
            for block in run.start..run.start + run.len {
                let mut data = self.view.read(block)?;
                let len = left.min(data.len());
                data[len..].fill(0);
                if self.obscures(values) {
                    permute::text(&self.out.options.key, b"target", &mut data[..len]);
                }
                left -= len;
                self.put(block, &data)?;
            }
        }
        Ok(())
    }

    /// The value of an attribute in an inode of its own.
    fn value(
        &mut self,
        slot: &mut [u8],
        values: &InodeValues,
        runs: &[FileRun],
    ) -> Result<(), DumpError> {
        if self.out.keeps_names() {
            return self.raw_content(runs);
        }
        let mut left = values.size.min(xattr::VALUE_MAX.into()) as usize;
        let hash = self.filled_hash(left);
        slot[ATIME_AT..ATIME_AT + 4].copy_from_slice(&hash.to_le_bytes());
        for run in runs {
            for block in run.start..run.start + run.len {
                let mut data = vec![0; self.size()];
                let len = left.min(data.len());
                data[..len].fill(FILL);
                left -= len;
                self.put(block, &data)?;
            }
        }
        Ok(())
    }

    /// The blocks behind the content of a file with verity that hold its descriptor.
    fn descriptor(&mut self, values: &InodeValues, runs: &[FileRun]) -> Result<(), DumpError> {
        let encrypted = values.flags.contains(InodeFlags::ENCRYPT);
        if encrypted || !self.g.features.ro_compat.contains(RoCompat::VERITY) {
            return Ok(());
        }
        let size = u64::from(self.g.block_size);
        let end = runs.last().map_or(0, |run| (run.logical + run.len) * size);
        let mut found = Vec::new();
        let read = locate(values.size, self.g.block_size, end, |at, len| {
            let mut bytes = Vec::new();
            for logical in at / size..(at + len as u64).div_ceil(size) {
                let holds =
                    |run: &&FileRun| (run.logical..run.logical + run.len).contains(&logical);
                match runs.iter().find(holds) {
                    Some(run) => {
                        let block = run.start + (logical - run.logical);
                        let data = self.view.read(block)?;
                        bytes.extend_from_slice(&data);
                        found.push((block, logical, data));
                    }
                    None => bytes.resize(bytes.len() + size as usize, 0),
                }
            }
            let from = (at % size) as usize;
            Ok::<_, block::DeviceError>(bytes[from..from + len].to_vec())
        });
        if let Err(ext4::format::verity::LocateError::Read(error)) = read {
            return Err(error.into());
        }
        for (block, logical, data) in found {
            // Never a block with content, whatever a damaged descriptor says.
            if logical * size >= values.size {
                self.put(block, &data)?;
            }
        }
        Ok(())
    }

    /// Content in the inode itself.
    fn inline(&mut self, ino: u32, slot: &mut [u8], values: &InodeValues) {
        let extra = BASE_SIZE + usize::from(values.extra_isize);
        let range = match slot.get(extra..).map(xattr::inline_value) {
            Some(Ok(range)) => extra + range.start..extra + range.end,
            _ => 0..0,
        };
        let mut content = slot[BLOCK_AT..BLOCK_AT + BLOCK_AREA].to_vec();
        content.extend_from_slice(&slot[range.clone()]);
        match values.kind() {
            Some(FileKind::Directory) if content.len() >= INLINE_HEAD => {
                self.inline_directory(ino, values, &mut content);
            }
            Some(FileKind::Symlink) => {
                let len = (values.size as usize).min(content.len());
                content[len..].fill(0);
                if self.obscures(values) {
                    permute::text(&self.out.options.key, b"target", &mut content[..len]);
                }
            }
            _ => content.fill(0),
        }
        slot[BLOCK_AT..BLOCK_AT + BLOCK_AREA].copy_from_slice(&content[..BLOCK_AREA]);
        slot[range].copy_from_slice(&content[BLOCK_AREA..]);
    }

    fn inline_directory(&mut self, ino: u32, values: &InodeValues, content: &mut [u8]) {
        let filetype = self.dir_layout(values).filetype;
        let mut drawn = Drawn::new(self, ino, values);
        for index in 0..INLINE_RUNS {
            let range = dir::inline_range(index, content.len());
            let (run, layout) = dir::inline_run(content, index, filetype);
            if run.is_empty() {
                continue;
            }
            if dir::check(run, layout, self.g.inodes_count).is_err() {
                if !self.out.keeps_names() {
                    content[range].fill(0);
                    self.out.leave_out(format!("entries in inode {ino}"));
                }
                continue;
            }
            let kept = drawn.replace(&mut content[range], layout);
            self.out.report.names_kept += kept;
        }
    }
}

/// Zeros behind the entries of a root of extents.
fn clear_root(area: &mut [u8]) {
    let Ok(root) = Node::parse(area, None, At::Super(0)) else { return };
    let used = 12 + 12 * root.len();
    area[used..].fill(0);
}
