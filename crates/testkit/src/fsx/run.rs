//! A stream of operations on a place, judged one by one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use base::Errno;

use crate::content::pattern;
use crate::fsx::model::{Model, same};
use crate::fsx::space::Cost;
use crate::fsx::{FsxTarget, Op, Plan, Refused, Sort, Stream, Way};

/// Operations that a failure lists.
const SHOWN: usize = 20;

/// What is run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Determines the stream.
    pub seed: u64,
    /// What the stream draws.
    pub plan: Plan,
    /// What operations cost; `None`: there is always room, and nothing may be refused.
    pub cost: Option<Cost>,
    /// The place is a FUSE mount: a direct write may be refused after a part of it was written, and
    /// the kernel keeps pages that a refused hole or zeroing had already changed below it.
    pub fuse: bool,
    /// Whether to report on stderr how far it has come.
    pub progress: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Report {
    /// Operations that succeeded, whole.
    pub done: BTreeMap<Sort, u64>,
    /// Those that were refused, or moved only a part, for want of space.
    pub refused: BTreeMap<Sort, u64>,
    /// Refusals that did not stand when the neighbour rested: it had blocks for a moment, or pages
    /// that were just being written had more promised than they took.
    pub again: u64,
    /// What the place cannot.
    pub left_out: BTreeSet<Sort>,
}

/// Runs a trial; afterwards all was compared. The neighbour goes on.
///
/// # Errors
/// The first thing that must not be, with the seed and the last operations.
pub fn run(place: &mut dyn FsxTarget, trial: &Trial) -> Result<Report, String> {
    let stream = Stream::new(trial.seed, trial.plan.clone());
    let mut run = Run {
        place,
        trial,
        stream,
        model: Model::new(),
        report: Report::default(),
        last: VecDeque::new(),
        number: 0,
        late: false,
    };
    run.all().map_err(|message| {
        let mut text = format!("seed {}, operation {}: {message}\n", trial.seed, run.number);
        for line in &run.last {
            let _infallible = writeln!(text, "  {line}");
        }
        text
    })?;
    Ok(run.report)
}

struct Run<'a> {
    place: &'a mut dyn FsxTarget,
    trial: &'a Trial,
    stream: Stream,
    model: Model,
    report: Report,
    last: VecDeque<String>,
    number: u64,
    /// What a mapping had was refused: another operation may still get the error.
    late: bool,
}

fn in_words(refused: Refused) -> String {
    match refused {
        Refused::Errno(errno) => errno.to_string(),
        Refused::Wrong(message) => message,
    }
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), String> {
        for number in 0..self.trial.plan.ops {
            self.number = number;
            let op = self.stream.next(self.model.size());
            let mut data = match op {
                Op::Write { len, .. } | Op::Read { len, .. } => vec![0; len as usize],
                _ => Vec::new(),
            };
            if let Op::Write { at, .. } = op {
                pattern(number + 1, at, &mut data);
            }
            let done = self.step(op, data);
            self.place.rest(false);
            done?;
            if self.trial.progress && (number + 1) % 10_000 == 0 {
                eprintln!("fsx: seed {}: {} operations", self.trial.seed, number + 1);
            }
        }
        self.compare("in the end")
    }

    fn note(&mut self, op: &Op, answer: &Result<u64, Refused>) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        let size = self.model.size();
        self.last.push_back(format!("{}: {op:?} of {size} bytes: {answer:?}", self.number));
    }

    /// One operation; where it is refused without a reason, once more while the neighbour rests.
    fn step(&mut self, mut op: Op, mut data: Vec<u8>) -> Result<(), String> {
        let mut rests = false;
        loop {
            let answer = self.place.run(&op, &mut data);
            self.note(&op, &answer);
            let moves = self.model.moves(&op);
            let done = match answer {
                Ok(count) if count == moves => return self.succeeded(&op, &data, count),
                Ok(count) if count > moves || matches!(op, Op::Read { .. }) => {
                    return Err(format!("{count} bytes, {moves} expected"));
                }
                Ok(count) => count,
                Err(Refused::Errno(Errno::ENOSPC)) => 0,
                Err(Refused::Errno(Errno::EOPNOTSUPP)) => return self.leave_out(&op),
                Err(refused) => return Err(in_words(refused)),
            };
            let Some(cost) = self.trial.cost else {
                return Err("refused, though there is room".into());
            };
            self.place.rest(true);
            self.model.apply_part(&op, &data, done);
            data.drain(..(done as usize).min(data.len()));
            op = op.rest(done);
            self.look_after_refusal(&op, &data, cost)?;
            let (free, worst) = (self.place.free(), cost.worst(&op, self.model.size()));
            let takes_none = matches!(op, Op::Read { .. } | Op::Sync { .. } | Op::DropCaches);
            let told_late = self.late;
            if takes_none && !told_late {
                return Err("no operation that takes space".into());
            }
            if free < worst && !takes_none {
                self.late |= matches!(op, Op::Write { way: Way::Mapped, .. });
                *self.report.refused.entry(op.sort()).or_default() += 1;
                return Ok(());
            }
            if rests && !told_late {
                return Err(format!("refused while {free} blocks are free; {worst} at the worst"));
            }
            // It serves as a reason once.
            self.late = told_late && !rests && !takes_none;
            rests = true;
            self.report.again += 1;
        }
    }

    fn succeeded(&mut self, op: &Op, data: &[u8], count: u64) -> Result<(), String> {
        *self.report.done.entry(op.sort()).or_default() += 1;
        match *op {
            Op::Read { at, len, .. } => {
                return same(&data[..count as usize], self.model.read(at, len));
            }
            Op::Reopen | Op::DropCaches | Op::Remount => return self.compare("then"),
            _ => self.model.apply(op, data, count),
        }
        let size = self.place.size().map_err(in_words)?;
        match size == self.model.size() {
            true => Ok(()),
            false => Err(format!("size {size}, {} expected", self.model.size())),
        }
    }

    fn leave_out(&mut self, op: &Op) -> Result<(), String> {
        let sort = op.sort();
        if self.report.done.contains_key(&sort) {
            return Err("not supported, though it was before".into());
        }
        self.report.left_out.insert(sort);
        self.stream.leave_out(sort);
        self.compare("after what is not supported")
    }

    /// The file is as the refused operation may have left it.
    fn look_after_refusal(&mut self, op: &Op, data: &[u8], cost: Cost) -> Result<(), String> {
        let mapped = matches!(op, Op::Write { way: Way::Mapped, .. });
        if mapped || self.trial.fuse && matches!(op, Op::Zero { .. } | Op::Punch { .. }) {
            // What was lost is still in the cache.
            self.place.run(&Op::DropCaches, &mut []).map_err(in_words)?;
        }
        let found = self.found()?;
        let looked = self.model.refused(op, data, &found, (cost.block, self.trial.fuse));
        looked.map_err(|message| format!("after it was refused: {message}"))
    }

    fn found(&mut self) -> Result<Vec<u8>, String> {
        let size = self.place.size().map_err(in_words)?;
        let mut bytes = vec![0; size as usize];
        let op = Op::Read { way: Way::Cached, at: 0, len: size };
        let count = self.place.run(&op, &mut bytes).map_err(in_words)?;
        match count == size {
            true => Ok(bytes),
            false => Err(format!("{count} of {size} bytes can be read")),
        }
    }

    fn compare(&mut self, when: &str) -> Result<(), String> {
        let found = self.found()?;
        same(&found, &self.model.bytes).map_err(|message| format!("{when}: {message}"))
    }
}
