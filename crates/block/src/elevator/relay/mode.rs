//! Mixing or holding: both are tried, and what serves better is kept.
//!
//! The worth of a window of time is the sum of the logarithms of what every party got done in it: a
//! tenth more for one is worth a tenth less for another. So a way of serving that starves somebody
//! loses, however much the others gain. Long waits have their price too.

use super::Relay;
use super::stream::{Sid, Stream};
use crate::elevator::NoteKind;
use base::Nanos;

/// How the device is shared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Mode {
    /// Requests of all go out as they come.
    Mixed,
    /// One group at a time, in slices of so many ms.
    Held(u64),
}

/// Slices that keep every request under the bound on waiting.
const SHORT: Mode = Mode::Held(40);
/// Slices for devices where switching is so dear that more waiting pays.
const LONG: Mode = Mode::Held(120);
/// Another way must be better by so much.
const BETTER: f64 = 0.04;
/// Asynchronous requests are a party where so many were done in a window, or wait.
const FLOOD: usize = 8;
/// After a win all is settled for so long, after a defeat each time for so many times longer.
const FIRST_PAUSE: Nanos = Nanos::from_millis(600);
const BACKOFF: u64 = 3;
const LAST_BACKOFF: Nanos = Nanos::from_secs(60);
/// Holding gives each of n parties at most an n-th of what it would get alone. Where every
/// sequential one gets nearly that by mixing, there is nothing to gain.
const SUFFERS: f64 = 0.9;
/// Shortest windows of mixing and of holding.
const MIXED_WINDOW: Nanos = Nanos::from_millis(80);
const HELD_WINDOW: Nanos = Nanos::from_millis(160);
/// A trial of mixing that is so much worse after half its time is given up.
const HOPELESS: f64 = 0.7;
/// Changes of the parties in less than this do not start a trial at once.
const CALM: Nanos = Nanos::from_secs(1);

impl Mode {
    /// What is taken off its worth because all wait longer.
    fn cost(self) -> f64 {
        match self {
            Mode::Mixed => 0.0,
            SHORT => 0.06,
            Mode::Held(_) => 0.26,
        }
    }
}

/// What is being tried.
pub(super) struct Trials {
    pub mode: Mode,
    /// The way that is kept while another one is tried.
    home: Mode,
    /// Worth of the latest window at home, with the parties it had.
    worth: Option<(f64, Vec<Sid>)>,
    /// Another way might serve better.
    may_gain: bool,
    window_began: Nanos,
    next_trial: Nanos,
    pause: Nanos,
    parties: usize,
    parties_since: Nanos,
    /// The other way that was tried last.
    tried: Mode,
}

impl Default for Trials {
    fn default() -> Trials {
        Trials {
            mode: Mode::Mixed,
            home: Mode::Mixed,
            worth: None,
            may_gain: false,
            window_began: Nanos::ZERO,
            next_trial: Nanos::ZERO,
            pause: FIRST_PAUSE,
            parties: 0,
            parties_since: Nanos::ZERO,
            tried: Mode::Mixed,
        }
    }
}

impl Relay {
    /// Parties that have done something in this window, or would like to.
    fn window_parties(&self) -> Vec<Sid> {
        let roots = self.streams.ids().filter(|&s| {
            let stream = &self.streams[s];
            if !stream.sync {
                // A commit that nobody waits for is no party whose share could be judged.
                return stream.window_ends as usize >= FLOOD || stream.order.len() >= FLOOD;
            }
            stream.window_bytes > 0 || !stream.is_idle() && self.party(s) == s
        });
        roots.collect()
    }

    /// A party has come or gone in this window: what all got in it says nothing.
    fn is_unsettled(&self, parties: &[Sid]) -> bool {
        let began = self.trials.window_began;
        parties.iter().any(|&s| self.streams[s].gone || self.streams[s].born > began)
    }

    /// Whether holding might serve the parties better: one that works in sequence gets little of
    /// what it would get alone, or asynchronous requests are in the way of synchronous ones.
    fn may_gain(&self, parties: &[Sid], span: Nanos) -> bool {
        let kinds = [false, true].map(|sync| parties.iter().any(|&s| self.streams[s].sync == sync));
        let suffers = parties.iter().any(|&s| {
            let stream = &self.streams[s];
            // The guard learns the pace first.
            let known = stream.pace.rate().is_some() || stream.probed.is_some();
            let counts = known && stream.sync && stream.is_sequential();
            let alone = stream.alone_rate().filter(|_| counts);
            let share = rate(stream, span) * parties.len() as f64;
            alone.is_some_and(|alone| share < SUFFERS * alone as f64)
        });
        kinds == [true; 2] || suffers && (self.rotational || self.depth == 1)
    }

    /// Closes the window where it is over: judges a trial, begins one.
    pub(super) fn tick(&mut self) {
        let span = self.now.since(self.trials.window_began);
        let least = match self.trials.mode {
            Mode::Mixed if self.is_hopeless(span) => span,
            Mode::Mixed => MIXED_WINDOW,
            Mode::Held(ms) => {
                HELD_WINDOW.max(Nanos::from_millis(2 * ms * self.trials.parties.max(2) as u64))
            }
        };
        if span < least {
            return;
        }
        let parties = self.window_parties();
        if self.is_unsettled(&parties) {
            let home = self.trials.home;
            self.enter(home);
            self.clear_window();
            return;
        }
        let worth = parties.iter().map(|&s| rate(&self.streams[s], span).ln()).sum::<f64>();
        let may_gain = self.may_gain(&parties, span);
        self.clear_window();
        let trial = parties.len() == self.trials.parties;
        if !trial {
            self.begin_anew(parties.len());
        }
        if trial && self.trials.mode != self.trials.home {
            self.judge(worth, &parties);
        } else {
            self.trials.worth = Some((worth, parties));
            self.trials.may_gain = may_gain;
        }
        self.try_another();
    }

    /// Other parties: what was learnt does not hold any more.
    fn begin_anew(&mut self, parties: usize) {
        let home = self.trials.home;
        self.enter(home);
        self.trials.parties = parties;
        self.trials.pause = FIRST_PAUSE;
        let calm = self.now.since(self.trials.parties_since) >= CALM;
        let wait = if calm || self.now < CALM { Nanos::ZERO } else { FIRST_PAUSE };
        self.trials.next_trial = self.now + wait;
        self.trials.parties_since = self.now;
    }

    /// Whether a trial of mixing can be given up already.
    fn is_hopeless(&self, span: Nanos) -> bool {
        if self.trials.home == Mode::Mixed || Nanos(2 * span.0) < MIXED_WINDOW {
            return false;
        }
        let Some((before, parties)) = &self.trials.worth else { return false };
        let now = parties.iter().map(|&s| rate(&self.streams[s], span).ln()).sum::<f64>();
        now < before - HOPELESS
    }

    fn judge(&mut self, worth: f64, parties: &[Sid]) {
        let tried = self.trials.mode;
        let dearer = tried.cost() - self.trials.home.cost();
        let won = match &self.trials.worth {
            Some((before, same)) if same == parties => worth > before + BETTER + dearer,
            _ => false,
        };
        self.trials.tried = tried;
        if won {
            self.trials.home = tried;
            self.trials.worth = Some((worth, parties.to_vec()));
            self.trials.pause = FIRST_PAUSE;
            if tried == SHORT {
                self.trials.next_trial = self.now; // Maybe longer ones are better still.
                return;
            }
        } else {
            let home = self.trials.home;
            self.enter(home);
            self.trials.pause = Nanos(self.trials.pause.0 * BACKOFF).min(LAST_BACKOFF);
        }
        self.trials.next_trial = self.now + self.trials.pause;
    }

    fn try_another(&mut self) {
        if self.now < self.trials.next_trial {
            return;
        }
        let home = self.trials.home;
        let alone = self.trials.parties < 2;
        if alone && home != Mode::Mixed {
            self.trials.home = Mode::Mixed;
            self.enter(Mode::Mixed);
        }
        if alone || home == Mode::Mixed && !self.trials.may_gain {
            self.trials.next_trial = self.now + MIXED_WINDOW;
            return;
        }
        let next = match (home, self.trials.tried) {
            (Mode::Mixed, _) => SHORT,
            (SHORT, LONG) => Mode::Mixed,
            (SHORT, _) => LONG,
            (_, SHORT) => Mode::Mixed,
            _ => SHORT,
        };
        self.enter(next);
    }

    fn enter(&mut self, mode: Mode) {
        if self.trials.mode != mode {
            self.end_turn(NoteKind::SliceGivenUp);
            self.trials.mode = mode;
            self.clear_window();
        }
    }

    fn clear_window(&mut self) {
        self.trials.window_began = self.now;
        for stream in self.streams.iter_mut() {
            (stream.window_bytes, stream.window_ends) = (0, 0);
        }
    }
}

/// Bytes per second in the window; a party that got nothing counts as if it had got one sector.
fn rate(stream: &Stream, span: Nanos) -> f64 {
    stream.window_bytes.max(512) as f64 * 1e9 / span.0.max(1) as f64
}
