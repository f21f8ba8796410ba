//! The calls of a log in an order in which they can have happened.
//!
//! A call is noted when it returns. While one task still waits for its open(2), another one may
//! have found the new file, written it and been noted: that file was made before.

use std::collections::VecDeque;

use base::map::HashMap;
use device::Event;

use super::history::{History, Span, Value};
use crate::calls::{Call, Place};
use crate::log::{Log, Note};

/// A call, its entry in the log, and when it ran.
#[derive(Clone, Copy)]
pub(super) struct Noted<'l> {
    pub call: &'l Call,
    pub entry: usize,
    pub span: Span,
}

/// The calls of a log, each of which is taken once.
pub(super) struct Order<'l> {
    all: Vec<Noted<'l>>,
    taken: Vec<bool>,
    /// Calls that make an inode, by its number and by its name.
    by_ino: HashMap<u64, VecDeque<usize>>,
    by_place: HashMap<&'l Place, VecDeque<usize>>,
}

impl<'l> Order<'l> {
    pub fn new(log: &'l Log) -> Order<'l> {
        let (mut by_ino, mut by_place) = (HashMap::default(), HashMap::default());
        let mut all: Vec<Noted<'l>> = Vec::new();
        for (index, entry) in log.writes().entries.iter().enumerate() {
            if !matches!(entry.event, Event::Mark(_)) {
                continue;
            }
            let Some(Note::Call(call)) = log.note(index) else { continue };
            if let Call::Create { at, ino, .. } = call {
                by_ino.entry(*ino).or_insert_with(VecDeque::new).push_back(all.len());
                if let Some(place) = at {
                    by_place.entry(place).or_insert_with(VecDeque::new).push_back(all.len());
                }
            }
            let span = Span { came: entry.came + 1, done: index + 1 };
            all.push(Noted { call, entry: index, span });
        }
        let taken = vec![false; all.len()];
        Order { all, taken, by_ino, by_place }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// A call, the first time.
    pub fn take(&mut self, position: usize) -> Option<Noted<'l>> {
        let again = std::mem::replace(&mut self.taken[position], true);
        (!again).then(|| self.all[position])
    }

    /// The call that makes an inode and was noted later, although it began before `done`.
    pub fn maker_of(&mut self, ino: u64, done: usize) -> Option<usize> {
        let makers = self.by_ino.get_mut(&ino)?;
        first(makers, &self.taken, &self.all, done)
    }

    /// The same, of a name.
    pub fn maker_at(&mut self, place: &Place, done: usize) -> Option<usize> {
        let makers = self.by_place.get_mut(place)?;
        first(makers, &self.taken, &self.all, done)
    }
}

fn first(
    makers: &mut VecDeque<usize>,
    taken: &[bool],
    all: &[Noted<'_>],
    done: usize,
) -> Option<usize> {
    while makers.front().is_some_and(|&position| taken[position]) {
        makers.pop_front();
    }
    makers.front().copied().filter(|&position| !all[position].span.began_behind(done))
}

impl History {
    /// Takes a call, whose work was seen at entry `done` at the latest; before it, what makes the
    /// inodes and names that it found.
    pub(super) fn take(&mut self, order: &mut Order<'_>, position: usize, done: usize) {
        let Some(Noted { call, entry, span }) = order.take(position) else { return };
        let span = Span { done: span.done.min(done), ..span };
        for ino in call.inodes().into_iter().flatten() {
            if !self.lives(ino)
                && let Some(maker) = order.maker_of(ino, span.done)
            {
                self.take(order, maker, span.done);
            }
        }
        for place in call.places().into_iter().flatten() {
            let slot = self.at(place);
            if self.value(slot) == Value::Nothing
                && let Some(maker) = order.maker_at(place, span.done)
            {
                self.take(order, maker, span.done);
            }
        }
        self.call(call, entry, span);
    }

    /// Whether an inode of this number is there, by what is known: it has a name, or never had one.
    fn lives(&self, ino: u64) -> bool {
        self.by_ino.get(&ino).is_some_and(|&object| {
            let named = &self.objects[object].named;
            let has = |value| value == Value::Object(object) || value == Value::Unknown;
            named.is_empty() || named.iter().any(|&(_, slot)| has(self.value(slot)))
        })
    }
}

impl Call {
    /// The inodes that have to be there for it.
    pub(super) fn inodes(&self) -> [Option<u64>; 2] {
        match self {
            Call::Create { at, .. } => [at.as_ref().map(|place| place.dir), None],
            Call::Link { ino, at } => [Some(*ino), Some(at.dir)],
            Call::Remove { at, .. } => [Some(at.dir), None],
            Call::Rename { from, to, .. } => [Some(from.dir), Some(to.dir)],
            Call::Write { ino, .. }
            | Call::Truncate { ino, .. }
            | Call::Allocate { ino, .. }
            | Call::Unknown { ino, .. }
            | Call::Rights { ino, .. }
            | Call::Fsync { ino, .. }
            | Call::Failed { ino } => [Some(*ino), None],
            Call::Sync => [None, None],
        }
    }

    /// The names that have to be there for it.
    pub(super) fn places(&self) -> [Option<&Place>; 2] {
        match self {
            Call::Remove { at, .. } => [Some(at), None],
            Call::Rename { from, to, exchange: true, .. } => [Some(from), Some(to)],
            Call::Rename { from, .. } => [Some(from), None],
            _ => [None, None],
        }
    }
}
