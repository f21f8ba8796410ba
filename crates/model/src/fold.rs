//! Equal pages are kept once.
//!
//! Workloads write the same page over and over: `fs_mark` fills every file with one buffer. Each
//! page that reaches the content of a modelled device is looked up by a few of its words among
//! recent ones, and an equal one takes its place. What a device holds is the same; a run of a
//! hundred thousand files needs the memory of their names.

use base::Page;
use block::{Op, Segment};

/// Bytes of a page that is looked at.
const PAGE: usize = 4096;
/// Pages that are remembered.
const SLOTS: usize = 1024;

/// Recent pages.
#[derive(Default)]
pub(crate) struct Fold {
    slots: Vec<Option<Page>>,
}

impl Fold {
    /// Puts known pages in the place of equal ones of a write.
    pub fn fold(&mut self, op: Op, segments: &mut [Segment]) {
        if op != Op::Write {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        for segment in segments {
            if segment.offset == 0 && segment.len as usize == PAGE && segment.page.len() == PAGE {
                let slot = &mut self.slots[slot_of(&segment.page)];
                match slot {
                    Some(known) if known.ptr_eq(&segment.page) => {}
                    Some(known) if known[..] == segment.page[..] => segment.page = known.clone(),
                    _ => *slot = Some(segment.page.clone()),
                }
            }
        }
    }
}

/// A slot by a few words of a page.
fn slot_of(page: &[u8]) -> usize {
    let word = |at: usize| {
        let bytes = page[at..at + 8].try_into().expect("eight bytes of a page");
        u64::from_le_bytes(bytes)
    };
    let mix = |hash: u64, at| (hash ^ word(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = [0, 16, 128, 520, 1032, 2056, 3080, 4088].into_iter().fold(PAGE as u64, mix);
    (hash >> 54) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pages_become_one_and_others_stay_themselves() {
        let mut fold = Fold::default();
        let mut write = |bytes: Vec<u8>| {
            let mut segments = [Segment::whole(Page::from_slice(&bytes))];
            fold.fold(Op::Write, &mut segments);
            assert_eq!(&segments[0].page[..], &bytes[..], "the content stays");
            segments[0].page.clone()
        };
        let first = write(vec![7; PAGE]);
        assert!(write(vec![7; PAGE]).ptr_eq(&first));
        // It differs in a byte that the slot does not depend on.
        let mut near = vec![7; PAGE];
        near[2000] = 8;
        assert!(!write(near).ptr_eq(&first));
        assert!(!write(vec![7; 512]).ptr_eq(&first), "only whole pages");
    }
}
