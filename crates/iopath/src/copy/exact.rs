//! What a copy does beyond cp(1) where an image is built that shall be the same every time: names
//! in the order of their bytes, times that are pinned, holes by content, owners from tables.

use std::ops::Range;

use base::Timespec;
use base::page::is_zero;

use super::Meta;
use super::owner_map::OwnerMap;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    /// Later times of modification become this one, and files were read when they were modified.
    pub pin: Option<Timespec>,
    /// Owners, modes and attributes that are not those of the source.
    pub owners: OwnerMap,
    /// Bytes of a block: one that holds zeros alone is a hole.
    pub block: usize,
    /// A symbolic link gets the mode that its source gives it. Elsewhere that means nothing, and
    /// it is 777.
    pub link_modes: bool,
}

impl Exact {
    /// Changes a node at a path to what it is to be.
    pub fn adjust(&self, path: &[u8], meta: &mut Meta) {
        if let Some(pin) = self.pin {
            meta.mtime = meta.mtime.min(pin);
            meta.atime = meta.mtime;
        }
        self.owners.adjust(path, meta);
    }

    /// Attributes that a node gets besides its own.
    pub fn attributes(&self, path: &[u8]) -> &[(Vec<u8>, Vec<u8>)] {
        self.owners.attributes(path)
    }

    /// The parts of some content at this offset of a file that are no blocks of zeros.
    pub fn runs(&self, offset: u64, data: &[u8]) -> Vec<Range<usize>> {
        let block = self.block.max(512);
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let within = ((offset + at as u64) % block as u64) as usize;
            let end = (at + block - within).min(data.len());
            if !is_zero(&data[at..end]) {
                match runs.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => runs.push(at..end),
                }
            }
            at = end;
        }
        runs
    }
}

/// Attributes that belong to the host which builds, not to the tree: labels of its security module,
/// its measurements, and its overlays.
pub fn is_of_the_host(name: &[u8]) -> bool {
    [b"security.selinux" as &[u8], b"security.ima", b"security.evm"].contains(&name)
        || name.starts_with(b"trusted.overlay.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let exact = Exact { block: 1024, ..Exact::default() };
        let mut data = vec![0; 5000];
        (data[1500], data[4999]) = (1, 1);
        assert_eq!(exact.runs(0, &data), [1024..2048, 4096..5000]);
        assert_eq!(exact.runs(512, &data), [512..1536, 4608..5000]);
        assert!(exact.runs(0, &data[..1024]).is_empty());
        data[600] = 1;
        assert_eq!(exact.runs(0, &data[..3000]), [Range { start: 0, end: 2048 }]);
    }
}
