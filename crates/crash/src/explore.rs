//! Visiting the states of a log: each is recovered, checked, and judged; equal ones once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::map::HashSet;
use device::Cut;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use rt::{Cx, World, WorldConfig};
use vfs::FileSystem;

use crate::cut::torn_superblock;
use crate::disk::Disk;
use crate::finding::{FINDINGS, Findings, look};
use crate::fold::{Checks, Visits};
use crate::host::HostImage;
use crate::log::{Log, Note};
use crate::medium::{Medium, Stable, durable};
use crate::oracle::{Oracle, OracleError, Rules};
use crate::plan::{Limits, Plan};
use crate::recover::Kind;
use crate::verdict::{Failed, Refusal, Wrong};

pub use crate::finding::{Alike, Finding, KINDS_MAX, Outcome};
pub use crate::medium::medium;
pub use crate::verdict::Verdict;

/// States that are judged together at most: enough for all processors, few enough for memory.
const BATCH: usize = 256;
/// How long judging a batch may take before the next ones are smaller: progress is shown, and kept,
/// after each.
const BATCH_TIME: Duration = Duration::from_secs(1);

/// Blocks of a durable part above which a batch ends where it grows: it would be copied.
const SHARED_BLOCKS: usize = 64 << 10;

/// States that are judged together.
struct Batch {
    waiting: Vec<Waiting>,
    /// How many they are going to be.
    size: usize,
    /// How many at least: one for each thread.
    least: usize,
}

impl Batch {
    /// One that is empty, and small as long as nobody knows how long a state takes.
    fn new(threads: usize) -> Batch {
        let least = threads.min(BATCH);
        Batch { waiting: Vec::new(), size: least, least }
    }

    /// Entries of the log before the first cut.
    fn oldest(&self) -> Option<usize> {
        self.waiting.first().map(|state| state.cut.upto)
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= self.size
    }

    /// As so many took so long, the next batch has twice as many, or fewer.
    fn learn(&mut self, judged: usize, took: Duration) {
        let fewer = || (judged as f64 * BATCH_TIME.as_secs_f64() / took.as_secs_f64()) as usize;
        let next = if took * 2 < BATCH_TIME { self.size * 2 } else { fewer() };
        self.size = next.clamp(self.least, BATCH);
    }
}

/// What is explored, and how.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The file system on the medium.
    pub kind: Kind,
    /// The disk.
    pub disk: Disk,
    /// Decides about random states.
    pub seed: u64,
    /// How many states at each place.
    pub limits: Limits,
    /// The power does not fail before the log has so many entries.
    pub from: usize,
    /// Only the states of shard `.0` (from 0) of `.1`.
    pub shard: (u64, u64),
    /// What an earlier run did: this one goes on where that one ended.
    pub before: Outcome,
    /// Distinct states that are judged, at most.
    pub states_max: u64,
    /// Kinds of findings that are shrunk and shown, at most [`KINDS_MAX`]; of others only how many.
    pub findings_max: usize,
    /// Compare each recovered file system with what its calls promised.
    pub oracle: Option<Rules>,
    /// Check each recovered file system, whole.
    pub check: bool,
    /// Ask e2fsck or xfs_repair about every nth state, too; 0: never.
    pub outside: u64,
    /// The kernel recovers the states, by a loop mount (which needs root), and not our code. Then
    /// the checker of the host is the only one that is asked, and there is no oracle.
    pub by_kernel: bool,
    /// States that are judged at the same time; 0: as many as there are processors. One at a time
    /// where the kernel recovers them.
    pub jobs: usize,
    /// One state is recovered for all that differ from it only in blocks that nobody reads.
    pub fold: bool,
}

impl Exploration {
    /// Everything, on a disk with a volatile cache, seed 1.
    pub fn new(kind: Kind) -> Exploration {
        Exploration {
            kind,
            disk: Disk::default(),
            seed: 1,
            limits: Limits::default(),
            from: 0,
            shard: (0, 1),
            before: Outcome::default(),
            states_max: u64::MAX,
            findings_max: FINDINGS,
            oracle: None,
            check: true,
            outside: 0,
            by_kernel: !kind.is_ours(),
            jobs: 0,
            fold: true,
        }
    }
}

/// What a judge knows of a state.
#[derive(Clone, Debug)]
pub struct State<'a> {
    /// Its number in the exploration.
    pub index: u64,
    /// The log.
    pub log: &'a Log,
    /// Where the power failed, and what was lost.
    pub cut: &'a Cut,
}

impl<'a> State<'a> {
    /// The marks that had been reached, in order.
    pub fn marks(&self) -> Vec<&'a str> {
        self.log.marks(self.cut.upto)
    }
}

/// Decides whether a recovered state is right. Called from several threads.
pub trait Judge: Sync {
    /// Looks at the file system.
    ///
    /// # Errors
    /// What is wrong, in one sentence, where a panic counts as one; or why the host cannot
    /// find out, which ends the exploration.
    fn judge(&self, cx: &mut Cx, fs: &Arc<dyn FileSystem>, state: &State) -> Result<(), Refusal>;

    /// Hears of each state that is judged, by the hash of what is on the disk, also where one that
    /// was recovered before stands for it.
    fn visited(&self, content: u128) {
        let _ = content;
    }

    /// Asks about the image of a recovered state, where [`Exploration::outside`] wants it; by
    /// default the host's e2fsck or xfs_repair, which changes nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    fn ask(&self, kind: Kind, image: &HostImage) -> Result<(), Refusal> {
        image.ask(kind)
    }

    /// Looks at a tree that the kernel has recovered. By default nothing is wrong with it.
    ///
    /// # Errors
    /// As [`judge`](Judge::judge).
    fn judge_mounted(&self, dir: &Path, state: &State) -> Result<(), Refusal> {
        let _ = (dir, state);
        Ok(())
    }
}

/// A state that waits for its judgement.
struct Waiting {
    index: u64,
    cut: Cut,
    medium: Medium,
}

/// Explores a log in the host's time. `progress` is called now and then with what was done so far;
/// its findings are not shrunk yet.
///
/// # Errors
/// The log cannot be read, or has no calls for an oracle; the host fails. What is wrong with states
/// is in the outcome.
pub fn explore(
    log: &Log,
    how: &Exploration,
    judge: &dyn Judge,
    progress: &mut dyn FnMut(&Outcome),
) -> Result<Outcome, OracleError> {
    let run = Run::new(log, how, judge)?;
    let plan = Plan::new(log, how.disk, how.seed, how.limits);
    let before = &how.before;
    let mut found = Findings::new(before.kinds.clone());
    // It is complete when the last state is judged: what is kept before may be all that is kept.
    let mut outcome = Outcome { complete: false, planned: 0, distinct: 0, ..before.clone() };
    let mut stable = Arc::new(Stable::new(log));
    let mut seen: HashSet<u128> = HashSet::default();
    let mut batch = Batch::new(run.threads());
    // States of equal content differ by what had been said.
    let (mut counted, mut notes, mut ended) = (0, 0, true);
    'places: for cuts in plan.places() {
        let Some(first) = cuts.first().filter(|cut| cut.upto >= how.from) else { continue };
        let durable = how.disk.durable(log, first.upto);
        if durable > stable.upto() {
            if stable.len() > SHARED_BLOCKS {
                run.judge_all(&mut batch, &mut found, &mut outcome)?;
            }
            run.visits.forget_before(batch.oldest().unwrap_or(first.upto));
            Arc::make_mut(&mut stable).advance(durable)?;
        }
        let decides = |at: &usize| log.note(*at).is_some_and(Note::decides);
        notes += (counted..first.upto).filter(decides).count() as u64;
        counted = counted.max(first.upto);
        for cut in cuts {
            let index = outcome.planned;
            outcome.planned += 1;
            let medium = stable.after(&cut)?;
            let key = medium.hash() ^ (u128::from(notes) << 64 | u128::from(notes));
            if !seen.insert(key) {
                continue;
            }
            outcome.distinct += 1;
            let (shard, shards) = how.shard;
            if key as u64 % shards != shard || index < before.next {
                continue;
            }
            if outcome.judged - before.judged + batch.waiting.len() as u64 >= how.states_max {
                ended = false;
                outcome.next = index;
                break 'places;
            }
            judge.visited(medium.hash());
            batch.waiting.push(Waiting { index, cut, medium });
            if batch.is_full() {
                run.judge_all(&mut batch, &mut found, &mut outcome)?;
                outcome.next = index + 1;
                outcome.entries = counted as u64;
                outcome.show_of(&found, how.findings_max);
                progress(&outcome);
            }
        }
    }
    run.judge_all(&mut batch, &mut found, &mut outcome)?;
    if ended {
        outcome.next = outcome.planned;
        outcome.entries = log.len() as u64;
    }
    run.shrink_all(&mut found)?;
    outcome.complete = ended;
    outcome.show_of(&found, how.findings_max);
    progress(&outcome);
    Ok(outcome)
}

/// Judges one state of a log again: for a finding that somebody wants to see.
///
/// # Errors
/// The log cannot be read, or the host fails; then what is wrong with the state, if something is.
pub fn repeat(
    log: &Log,
    how: &Exploration,
    judge: &dyn Judge,
    cut: &Cut,
) -> Result<Result<(), Wrong>, OracleError> {
    let run = Run::new(log, how, judge)?;
    let medium = medium(log, cut)?;
    run.judged(medium, &State { index: 0, log, cut })
}

/// An exploration at work.
struct Run<'a> {
    log: &'a Log,
    how: &'a Exploration,
    judge: &'a dyn Judge,
    oracle: Option<Oracle>,
    visits: Visits,
    checks: Checks,
    recovered: AtomicU64,
    /// The threads that judge, where they are not all there are.
    pool: Option<ThreadPool>,
}

impl<'a> Run<'a> {
    fn new(
        log: &'a Log,
        how: &'a Exploration,
        judge: &'a dyn Judge,
    ) -> Result<Run<'a>, OracleError> {
        let oracle = how.oracle.map(|rules| Oracle::new(log, how.kind, rules)).transpose()?;
        let (visits, checks) = (Visits::default(), Checks::default());
        let pool = ThreadPoolBuilder::new().num_threads(how.jobs);
        let pool = (how.jobs > 0).then(|| pool.build()).transpose();
        let pool = pool.map_err(|error| OracleError::Host(error.to_string()))?;
        let recovered = AtomicU64::new(0);
        Ok(Run { log, how, judge, oracle, visits, checks, recovered, pool })
    }

    /// How many states are judged at the same time.
    fn threads(&self) -> usize {
        match &self.pool {
            Some(pool) => pool.current_num_threads(),
            None => rayon::current_num_threads(),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a check runs in the host's time")]
    fn judge_all(
        &self,
        batch: &mut Batch,
        found: &mut Findings,
        outcome: &mut Outcome,
    ) -> Result<(), OracleError> {
        let waiting = std::mem::take(&mut batch.waiting);
        let (began, count) = (Instant::now(), waiting.len());
        outcome.judged += count as u64;
        outcome.asked += waiting.iter().filter(|state| self.asked(state.index)).count() as u64;
        let judge = |Waiting { index, cut, medium }| {
            let state = State { index, log: self.log, cut: &cut };
            let wrong = self.judged(medium, &state)?.err();
            let finding =
                |(verdict, message)| Finding { index, verdict, message, cut: cut.clone(), also: 0 };
            Ok(wrong.map(finding))
        };
        let wrong: Result<Vec<Option<Finding>>, OracleError> = match self.how.by_kernel {
            // One at a time: Btrfs knows its file systems by their UUIDs.
            true => waiting.into_iter().map(judge).collect(),
            false => match &self.pool {
                Some(pool) => pool.install(|| waiting.into_par_iter().map(judge).collect()),
                None => waiting.into_par_iter().map(judge).collect(),
            },
        };
        let wrong = wrong?;
        outcome.recovered = self.how.before.recovered + self.recovered.load(Ordering::Relaxed);
        for finding in wrong.into_iter().flatten() {
            outcome.wrong += 1;
            found.add(finding);
        }
        batch.learn(count, began.elapsed());
        Ok(())
    }

    /// What is wrong with a state.
    fn judged(&self, medium: Medium, state: &State) -> Result<Result<(), Wrong>, OracleError> {
        match self.visit(medium, state) {
            Ok(()) => Ok(Ok(())),
            Err(Failed::Wrong(wrong)) => Ok(Err(wrong)),
            Err(Failed::Host(error)) => Err(OracleError::Host(error)),
        }
    }

    /// Is the host's checker asked about this state?
    fn asked(&self, index: u64) -> bool {
        self.how.outside > 0 && index.is_multiple_of(self.how.outside)
    }

    /// Recovers, judges and checks a state, or returns what came out for one that is the same to
    /// recovery.
    fn visit(&self, medium: Medium, state: &State) -> Result<(), Failed> {
        if self.how.by_kernel {
            return self.visit_by_kernel(&medium, state);
        }
        let asked = self.asked(state.index);
        let upto = state.cut.upto;
        if self.how.fold
            && !asked
            && let Some(verdict) = self.visits.find(upto, medium.changes())
        {
            return Ok(verdict?);
        }
        self.recovered.fetch_add(1, Ordering::Relaxed);
        let medium = Arc::new(medium);
        let judging = AtomicBool::new(false);
        let visit = |cx: &mut Cx| self.recover(cx, &medium, state, asked, &judging);
        let world = || World::new(WorldConfig::default()).run("recover", visit);
        let verdict = match catch_unwind(AssertUnwindSafe(world)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Failed::Wrong(wrong))) => Err(wrong),
            Ok(Err(host)) => return Err(host),
            Err(panic) => {
                let text = panic_text(&*panic);
                return Err(Failed::Wrong(match judging.into_inner() {
                    true => (Verdict::Refused, text),
                    false => (Verdict::Damaged, format!("a panic of iopath's recovery: {text}")),
                }));
            }
        };
        if self.how.fold {
            self.visits.add(upto, medium.reads(), medium.changes(), verdict.clone());
        }
        Ok(verdict?)
    }

    fn recover(
        &self,
        cx: &mut Cx,
        medium: &Arc<Medium>,
        state: &State,
        asked: bool,
        judging: &AtomicBool,
    ) -> Result<(), Failed> {
        let kind = self.how.kind;
        let damaged = |message| (Verdict::Damaged, message);
        let mounted = kind.mount(cx, medium.clone());
        let fs = mounted.map_err(|error| damaged(format!("does not mount: {error}")))?;
        let kept = self.oracle.as_ref().map(|oracle| oracle.verify(cx, &fs, state.cut.upto));
        judging.store(true, Ordering::Relaxed);
        let judged = self.judge.judge(cx, &fs, state);
        judging.store(false, Ordering::Relaxed);
        if let Err(Refusal::Host(error)) = judged {
            fs.shutdown_hard();
            return Err(Failed::Host(error));
        }
        let closed = fs.unmount(cx);
        closed.map_err(|errno| damaged(format!("does not unmount: {errno}")))?;
        if self.how.check {
            self.check(cx, medium).map_err(damaged)?;
        }
        if asked {
            let image = HostImage::new(medium);
            let said = image.and_then(|image| self.judge.ask(kind, &image));
            said.map_err(|refusal| refusal.by(Verdict::Damaged))?;
        }
        kept.unwrap_or(Ok(()))?;
        judged.map_err(|refusal| refusal.by(Verdict::Refused))
    }

    /// Checks a recovered file system, unless one was checked that is the same to the check.
    fn check(&self, cx: &mut Cx, medium: &Arc<Medium>) -> Result<(), String> {
        let faulty = !self.log.header().faults.is_empty();
        if !self.how.fold {
            return self.how.kind.check(cx, medium.clone(), faulty);
        }
        if let Some(blocks) = self.checks.find(medium) {
            medium.note_reads(&blocks);
            return Ok(());
        }
        medium.begin_reads();
        let checked = self.how.kind.check(cx, medium.clone(), faulty);
        let blocks = medium.end_reads();
        checked.map(|()| self.checks.add(medium, blocks))
    }

    /// Lets the kernel recover a state, and judges it.
    fn visit_by_kernel(&self, medium: &Medium, state: &State) -> Result<(), Failed> {
        let damaged = |refusal: Refusal| refusal.by(Verdict::Damaged);
        let image = HostImage::new(medium).map_err(damaged)?;
        let kind = self.how.kind;
        let judged = image.mounted(kind, |dir| self.judge.judge_mounted(dir, state));
        let judged = judged.map_err(|refusal| match (refusal, kind) {
            (Refusal::State(said), kind) => {
                damaged(Refusal::State(torn_superblock(self.log, kind, state.cut, said)))
            }
            (refusal, _) => damaged(refusal),
        })?;
        if self.asked(state.index) {
            self.judge.ask(kind, &image).map_err(damaged)?;
        }
        judged.map_err(|refusal| refusal.by(Verdict::Refused))
    }

    /// Shrinks the kinds that are shown, as far as they are not yet.
    fn shrink_all(&self, found: &mut Findings) -> Result<(), OracleError> {
        for alike in found.not_shrunk(self.how.findings_max) {
            alike.finding = self.shrink(alike.finding.clone())?;
            alike.shrunk = true;
        }
        Ok(())
    }

    /// Takes losses back as long as the state stays wrong in the same way: says what looks alike.
    fn shrink(&self, finding: Finding) -> Result<Finding, OracleError> {
        let mut stable = Stable::new(self.log);
        stable.advance(durable(self.log, &finding.cut))?;
        let stable = Arc::new(stable);
        let mut failed = None;
        let (mut message, alike) = (finding.message.clone(), finding.look());
        let mut fails = |cut: &Cut| {
            if !self.how.disk.allows(self.log, cut) {
                return false;
            }
            let medium = match stable.after(cut) {
                Ok(medium) => medium,
                Err(error) => {
                    failed = Some(error.into());
                    return false;
                }
            };
            let state = State { index: finding.index, log: self.log, cut };
            match self.judged(medium, &state) {
                Ok(Err((verdict, new))) if look(verdict, &new) == alike => {
                    message = new;
                    true
                }
                Ok(_) => false,
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        };
        let mut cut = finding.cut.clone().shrink(&mut fails);
        if self.how.disk == Disk::Barrier {
            // The last write may be torn: losses behind it are taken back when it is whole.
            cut = cut.shrink(&mut fails);
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Finding { cut, message, ..finding }),
        }
    }
}

/// The message of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic".to_owned())
}
