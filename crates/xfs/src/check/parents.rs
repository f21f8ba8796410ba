//! Parent pointers against names, both ways.

use base::Ino;

use super::records::Links;
use super::stage::Stage;
use super::{Checker, Rule};
use crate::attr::parent::ParentPointer;
use crate::format::At;
use crate::format::attr::{AttrFlags, NAMESPACE};

/// What names say, and what parent pointers say.
#[derive(Default)]
pub(super) struct Parents {
    names: Vec<Link>,
    pointers: Vec<Link>,
}

impl Parents {
    /// Adds the numbers of the inodes.
    pub fn places(&self, places: &mut Vec<u64>) {
        places.extend(self.names.iter().chain(&self.pointers).map(|link| link.ino.0));
    }

    /// Gives up what is of an inode from this one on.
    pub fn forget(&mut self, end: u64) {
        for list in [&mut self.names, &mut self.pointers] {
            list.retain(|link| link.ino.0 < end);
            list.shrink_to_fit();
        }
    }
}

/// A name of an inode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Link {
    ino: Ino,
    dir: Ino,
    name: Vec<u8>,
    /// Of the directory, as the pointer says, or as it is.
    generation: u32,
}

/// What a link takes with its name, and what the allocator adds.
const LINK: u64 = size_of::<Link>() as u64 + 32;

impl Link {
    fn key(&self) -> (Ino, Ino, &[u8]) {
        (self.ino, self.dir, &self.name)
    }
}

impl Checker<'_> {
    fn has_parents(&self) -> bool {
        self.reader.geometry.features.parent()
    }

    /// Takes note of a name in the directory that is being read.
    pub(super) fn expect_parent(&mut self, dir: Ino, ino: Ino, name: &[u8]) {
        if self.has_parents() {
            let generation = self.current.as_ref().map_or(0, |known| known.generation);
            self.take_link(ino, dir, generation, name, true);
        }
    }

    /// Adds a name to one side of the comparison, or a pointer to the other one.
    fn take_link(&mut self, ino: Ino, dir: Ino, generation: u32, name: &[u8], is_name: bool) {
        match self.stage {
            Stage::Sums => {
                let times = if is_name { 1 } else { -1 };
                self.sums.pointer(ino, dir, generation, name, times);
            }
            Stage::Records => {
                let Some(links) = self.links.as_mut().filter(|links| links.covers(ino)) else {
                    return;
                };
                let link = Link { ino, dir, name: name.to_vec(), generation };
                let parents = &mut links.parents;
                let list = if is_name { &mut parents.names } else { &mut parents.pointers };
                list.push(link);
                links.count_parent(LINK + name.len() as u64);
            }
        }
    }

    /// Takes note of an attribute if it is a parent pointer.
    pub(super) fn parent_attribute(
        &mut self,
        ino: Ino,
        flags: AttrFlags,
        name: &[u8],
        value: Option<&[u8]>,
    ) {
        if !flags.contains(AttrFlags::PARENT) || flags.contains(AttrFlags::INCOMPLETE) {
            return;
        }
        let alone = flags & NAMESPACE == AttrFlags::PARENT && self.has_parents();
        let possible = !name.contains(&b'/') && !name.contains(&0);
        match ParentPointer::of_attribute(name, value.unwrap_or_default()) {
            Some(ParentPointer { dir, generation, name }) if alone && possible => {
                self.take_link(ino, dir, generation, &name, false);
            }
            _ => {
                let text = format!(
                    "\"{}\" with a value of {} bytes is no parent pointer",
                    name.escape_ascii(),
                    value.map_or(0, <[u8]>::len)
                );
                self.findings.add(Rule::ParentForm, At::Inode(ino), text);
            }
        }
    }

    /// Compares the names and pointers of a window.
    pub(super) fn parent_pass(&mut self, links: &mut Links) {
        if !self.has_parents() || self.names_unknown {
            return;
        }
        let Parents { mut names, mut pointers } = std::mem::take(&mut links.parents);
        names.sort_unstable();
        pointers.sort_unstable();
        // Names of what is not in use are another finding.
        names.retain(|name| links.inodes.contains_key(&name.ino.0));
        let mut wanted = names.iter().peekable();
        for pointer in &pointers {
            while let Some(missing) = wanted.next_if(|name| name.key() < pointer.key()) {
                self.parent_finding(Rule::ParentMissing, missing, "has no parent pointer");
            }
            let Some(name) = wanted.next_if(|name| name.key() == pointer.key()) else {
                self.parent_finding(Rule::ParentDangling, pointer, "is no name of it");
                continue;
            };
            if name.generation != pointer.generation {
                let text = format!("the pointer has generation {:#x}", pointer.generation);
                self.parent_finding(Rule::ParentGeneration, pointer, &text);
            }
        }
        for missing in wanted {
            self.parent_finding(Rule::ParentMissing, missing, "has no parent pointer");
        }
    }

    fn parent_finding(&mut self, rule: Rule, link: &Link, text: &str) {
        let text = format!("\"{}\" in {}: {text}", link.name.escape_ascii(), link.dir);
        self.findings.add(rule, At::Inode(link.ino), text);
    }
}
