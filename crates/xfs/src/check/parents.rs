//! Parent pointers against names, both ways.

use base::Ino;

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

/// A name of an inode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Link {
    ino: Ino,
    dir: Ino,
    name: Vec<u8>,
    /// Of the directory, as the pointer says; 0 in those of names.
    generation: u32,
}

impl Link {
    fn key(&self) -> (Ino, Ino, &[u8]) {
        (self.ino, self.dir, &self.name)
    }
}

impl Checker<'_> {
    fn has_parents(&self) -> bool {
        self.reader.geometry.features.parent()
    }

    /// Takes note of a name in a directory.
    pub(super) fn expect_parent(&mut self, dir: Ino, ino: Ino, name: &[u8]) {
        if self.has_parents() {
            self.parents.names.push(Link { ino, dir, name: name.to_vec(), generation: 0 });
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
                self.parents.pointers.push(Link { ino, dir, name, generation });
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

    /// Compares both.
    pub(super) fn parent_pass(&mut self) {
        if !self.has_parents() || self.names_unknown {
            return;
        }
        let Parents { mut names, mut pointers } = std::mem::take(&mut self.parents);
        names.sort_unstable();
        pointers.sort_unstable();
        // Names of what is not in use are another finding.
        names.retain(|name| self.inodes.contains_key(&name.ino.0));
        let mut wanted = names.iter().peekable();
        for pointer in &pointers {
            while let Some(missing) = wanted.next_if(|name| name.key() < pointer.key()) {
                self.parent_finding(Rule::ParentMissing, missing, "has no parent pointer");
            }
            if wanted.next_if(|name| name.key() == pointer.key()).is_none() {
                self.parent_finding(Rule::ParentDangling, pointer, "is no name of it");
                continue;
            }
            let known = self.inodes.get(&pointer.dir.0).map(|dir| dir.generation);
            if known.is_some_and(|known| known != pointer.generation) {
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
