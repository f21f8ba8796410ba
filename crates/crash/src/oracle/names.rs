//! The names of a recovered tree: each is one that the promises allow, and they appear in order.

use std::collections::BTreeMap;

use base::map::{HashMap, HashSet};
use base::{Errno, Ino};
use rt::Cx;
use vfs::FileSystem;

use super::history::{Moment, Naming, Slot, Value, entries};
use super::{Oracle, Rules, broken};
use crate::calls::Node;
use crate::verdict::Wrong;

/// An inode of the recovered tree that is known.
pub(super) struct Found {
    pub ino: Ino,
    pub path: String,
    /// What it may be: an inode number that was used again may be the old file or the new one.
    pub lives: Vec<Life>,
}

/// One file that an inode may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub object: usize,
    /// It stands in the place of another file by a rename: when that began and returned.
    pub replaced: Option<(usize, usize)>,
}

/// When the changes of one family of names may have ended: each bound with its slot and version.
#[derive(Default)]
struct Order {
    /// This change is there.
    there: Option<(usize, usize, usize)>,
    /// This one is not.
    missing: Option<(usize, usize, usize)>,
}

/// A recovered directory: a name with its inode number.
type Listing = BTreeMap<Vec<u8>, u64>;

impl Oracle {
    /// Compares all names that can be reached, and answers the inodes that they lead to.
    pub(super) fn names(
        &self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        at: Moment,
    ) -> Result<Vec<Found>, Wrong> {
        let mut found = Vec::new();
        let mut known = HashSet::default();
        let mut orders: HashMap<usize, Order> = HashMap::default();
        let mut folders = vec![(0, fs.root(), String::new())];
        while let Some((dir, ino, path)) = folders.pop() {
            let listed = listing(cx, fs, ino);
            let listed = listed.map_err(|errno| broken(format!("{path}/: {errno}")))?;
            self.strangers(dir, &listed, &path)?;
            for &slot in self.history.of_dir.get(&dir).map_or(&[][..], |slots| slots) {
                let shown = &self.history.slots[slot];
                let here = listed.get(&shown.name.0).copied();
                let shows = self.slot(shown, here, at, &path)?;
                self.order(&mut orders, slot, &shows, at)?;
                let Some(ino) = here else { continue };
                let lives = lives(shown, &shows);
                let child = format!("{path}/{}", shown.name);
                if lives.is_empty() || !known.insert(ino) {
                    continue;
                }
                if let [Life { object, .. }] = lives[..]
                    && self.history.objects[object].node == Node::Directory
                {
                    folders.push((object, Ino(ino), child.clone()));
                }
                found.push(Found { ino: Ino(ino), path: child, lives });
            }
        }
        Ok(found)
    }

    /// Names that no call made.
    fn strangers(&self, dir: usize, listed: &Listing, path: &str) -> Result<(), Wrong> {
        let slots = self.history.of_dir.get(&dir).map_or(&[][..], |slots| slots);
        if listed.len() <= slots.len() {
            return Ok(()); // Each is compared by itself, and those that are too many are missed.
        }
        let made: HashSet<&[u8]> =
            slots.iter().map(|slot| &self.history.slots[*slot].name.0[..]).collect();
        match listed.keys().find(|name| !made.contains(&name[..])) {
            None => Ok(()),
            Some(name) => {
                let name = String::from_utf8_lossy(name);
                Err(broken(format!("{path}/{name}: no call made this name")))
            }
        }
    }

    /// The versions of a name that the state may show and does show.
    fn slot(
        &self,
        slot: &Slot,
        here: Option<u64>,
        at: Moment,
        path: &str,
    ) -> Result<Vec<usize>, Wrong> {
        let covered = |version: &&Naming| self.history.covered(slot.dir, version, at);
        let newest = slot.versions.iter().filter(covered).map(|version| version.span.came).max();
        let allowed =
            |version: &Naming| at.begun(version.span) && !version.span.before(newest.unwrap_or(0));
        let matches = |version: &Naming| match (version.value, here) {
            (Value::Unknown, _) | (Value::Nothing, None) => true,
            (Value::Object(object), Some(ino)) => self.history.objects[object].ino == ino,
            _ => false,
        };
        let numbered = slot.versions.iter().enumerate();
        let shows: Vec<usize> = numbered
            .filter(|(_, version)| allowed(version) && matches(version))
            .map(|(number, _)| number)
            .collect();
        // POSIX does not say that a power cut leaves one of two names that a rename swaps.
        let swapped = |version: &Naming| version.replaces && allowed(version);
        let silent =
            self.rules == Rules::Posix && here.is_none() && slot.versions.iter().any(swapped);
        if !shows.is_empty() || silent {
            return Ok(shows);
        }
        let shown = format!("{path}/{}", slot.name);
        let is = match here {
            None => "missing".to_owned(),
            Some(ino) => format!("inode {ino}"),
        };
        let promise = slot.versions.iter().rfind(covered);
        let promise = promise.filter(|version| version.span.done > 0).map(|version| {
            let by = self.promise_of(version.span, &[Some(slot.dir), version.subject], at);
            format!("{} is kept by {by}", self.call_at(version.span))
        });
        let promise = promise.unwrap_or_else(|| "it was there before, or not, and stays so".into());
        Err(broken(format!("{shown} is {is}: {promise}")))
    }

    /// Changes of names appear in the order in which they were made, if the rules say so.
    fn order(
        &self,
        orders: &mut HashMap<usize, Order>,
        slot: usize,
        shows: &[usize],
        at: Moment,
    ) -> Result<(), Wrong> {
        let Slot { dir, versions, .. } = &self.history.slots[slot];
        let family = match self.rules {
            Rules::Posix => return Ok(()),
            Rules::Ext4 => 0,
            Rules::Xfs => self.history.family(*dir),
        };
        let (Some(first), Some(last)) = (shows.first(), shows.last()) else { return Ok(()) };
        if shows.iter().any(|version| versions[*version].value == Value::Unknown) {
            return Ok(());
        }
        let there = versions[*first].span.came;
        let later = versions[*last..].iter().enumerate().skip(1).filter(|(_, version)| {
            at.begun(version.span) && versions[*last].span.before(version.span.came)
        });
        let missing = later.map(|(after, version)| (version.span.done, last + after)).min();
        let order = orders.entry(family).or_default();
        if order.there.is_none_or(|known| known.0 < there) {
            order.there = Some((there, slot, *first));
        }
        if let Some((done, version)) = missing
            && order.missing.is_none_or(|known| known.0 > done)
        {
            order.missing = Some((done, slot, version));
        }
        match (order.there, order.missing) {
            (Some((there, slot, version)), Some((missing, other, lost))) if there > missing => {
                let span = |slot: usize, version: usize| {
                    self.call_at(self.history.slots[slot].versions[version].span)
                };
                Err(broken(format!(
                    "{} is there, and {}, which had returned before, is not",
                    span(slot, version),
                    span(other, lost)
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The files that these versions of a name stand for, each with the oldest rename that may have put
/// it there in the place of another one; none where it may be there without.
fn lives(slot: &Slot, shows: &[usize]) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    for version in shows.iter().rev().map(|version| &slot.versions[*version]) {
        let Value::Object(object) = version.value else { return Vec::new() };
        let replaced = version.replaces.then_some((version.span.came, version.span.done));
        match lives.iter_mut().find(|life| life.object == object) {
            // It had the name before: nobody knows which time it is.
            Some(life) => life.replaced = life.replaced.and(replaced),
            None => lives.push(Life { object, replaced }),
        }
    }
    lives
}

fn listing(cx: &mut Cx, fs: &dyn FileSystem, dir: Ino) -> Result<Listing, Errno> {
    let names = entries(cx, fs, dir)?;
    Ok(names.into_iter().map(|(name, ino)| (name.0, ino)).collect())
}
