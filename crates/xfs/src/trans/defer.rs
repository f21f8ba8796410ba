//! The loop that carries out what a transaction deferred.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use rt::Cx;

use super::Trans;
use super::intent::{IntentItem, Work};
use crate::error::{Result, XfsError};
use base::Errno;

/// How far a piece of work came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// All of it.
    Done,
    /// The transaction is full: this is left, and goes on in the next one.
    Again(Work),
}

/// Who carries out deferred work: the allocator, the reverse map, the reference counts, the maps of
/// files.
pub trait IntentFinisher: Send + Sync {
    /// Carries out one piece of work in `trans`, which has a reservation for it. It may defer more
    /// work. May park.
    ///
    /// # Errors
    /// Whatever goes wrong; the file system is shut down then, since the intent is in the log.
    fn finish(&self, cx: &mut Cx, trans: &mut Trans, work: &Work) -> Result<Finished>;
}

impl Trans {
    /// Asks for work after this transaction. It is carried out by [`Trans::commit`], or earlier by
    /// [`Trans::finish_deferred`].
    pub fn defer(&mut self, work: Work) {
        self.deferred.push_back(work);
    }

    /// Carries out everything that was deferred, rolling as often as it takes. Buffers that are not
    /// held are released by the first roll. May park.
    ///
    /// # Errors
    /// The finisher's; the file system is shut down then.
    pub fn finish_deferred(&mut self, cx: &mut Cx) -> Result<()> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let finisher = self.log.finisher.lock(cx).clone();
        self.finish_with(cx, finisher, VecDeque::new())
    }

    /// As [`Trans::finish_deferred`], beginning with intents that are in the log already.
    pub(crate) fn finish_with(
        &mut self,
        cx: &mut Cx,
        finisher: Option<Arc<dyn IntentFinisher>>,
        mut pending: VecDeque<Arc<IntentItem>>,
    ) -> Result<()> {
        while !self.deferred.is_empty() || !pending.is_empty() {
            let finisher = finisher.clone().ok_or(XfsError::Answer(Errno::EOPNOTSUPP))?;
            let new = self.log_intents();
            match pending.front().map(|intent| &intent.work[0]) {
                // A chain of any length: what a step has deferred is done before the next one.
                Some(Work::Exchange(_)) => {
                    new.into_iter().rev().for_each(|intent| pending.push_front(intent));
                }
                _ => pending.extend(new),
            }
            let result = self.finish_first(cx, &*finisher, &mut pending);
            if let Err(error) = result {
                self.log.force_shutdown("deferred work could not be carried out");
                return Err(error);
            }
        }
        Ok(())
    }

    /// Logs an intent for each group of equal work.
    fn log_intents(&mut self) -> Vec<Arc<IntentItem>> {
        let mut groups: Vec<Vec<Work>> = Vec::new();
        for work in take(&mut self.deferred) {
            match groups.last_mut() {
                Some(group)
                    if group.len() < work.most_together() && group[0].kinds() == work.kinds() =>
                {
                    group.push(work);
                }
                _ => groups.push(vec![work]),
            }
        }
        for group in &mut groups {
            // One transaction frees those that follow each other in the order of the groups.
            group.sort_by_key(|work| match *work {
                Work::Free { start, .. } => start,
                _ => 0,
            });
        }
        groups.into_iter().map(|group| self.log_intent(group)).collect()
    }

    fn log_intent(&mut self, work: Vec<Work>) -> Arc<IntentItem> {
        let intent = IntentItem::intent(self.log.next_intent(), work);
        self.log_once(intent.clone());
        intent
    }

    /// Carries out the first of the pending intents in a transaction of its own.
    fn finish_first(
        &mut self,
        cx: &mut Cx,
        finisher: &dyn IntentFinisher,
        pending: &mut VecDeque<Arc<IntentItem>>,
    ) -> Result<()> {
        if self.is_dirty() {
            self.roll(cx)?;
        }
        let intent = pending.pop_front().expect("there is a pending intent");
        self.log_once(IntentItem::done(&intent));
        for (index, work) in intent.work.iter().enumerate() {
            if let Finished::Again(rest) = finisher.finish(cx, self, work)? {
                let mut left = vec![rest];
                left.extend_from_slice(&intent.work[index + 1..]);
                let again = self.log_intent(left);
                pending.push_front(again);
                break;
            }
        }
        Ok(())
    }
}
