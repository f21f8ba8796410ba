//! One run in a world of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::Nanos;
use block::{Queue, SyncWrites, TraceEvent};
use cache::{PageCache, PageCacheConfig};
use model::{LoadSpec, ModelDevice, ModelStats, Profile};
use rt::{Cgroup, Cx, JoinHandle, SpinLock, World};
use vfs::Namespace;
use workload::{Stop, Target};

use super::base_image::BaseImage;
use super::collect::{Collected, Collector};
use super::figures::{self, Played};
use super::forget::Forgetful;
use super::loads::{self, Outcome};
use super::mount::{More, Mounted};
use crate::experiment::{Experiment, Load, RunSpec, tunables};
use crate::program::Output;
use crate::record::{Made, RunRecord, SCHEMA};

/// Events that the queue's ring keeps between two looks at it.
const RING: usize = 1 << 17;
/// Workloads begin within this time, as the seed says: a tick of 100 Hz.
const PHASE: Nanos = Nanos::from_millis(10);
/// Between two looks.
const LOOK: Nanos = Nanos::from_millis(250);

impl Scene<'_> {
    /// Runs it. Equal scenes give equal records.
    ///
    /// # Errors
    /// What failed inside of the world.
    pub fn run(&self, image: &BaseImage) -> Result<Output, String> {
        let spec = self.spec;
        let mut varied = None;
        for one in &spec.machine {
            varied = Some(one.apply(varied.as_ref().unwrap_or(self.profile))?);
        }
        let profile = varied.as_ref().unwrap_or(self.profile);
        let scene = Scene { profile, ..*self };
        let mut world = World::new(profile.world_config(spec.key.seed));
        let played = world.run("lab", |cx| scene.play(cx, image))?;
        Ok(scene.output(played, world.hash()))
    }

    fn output(&self, mut played: Played, hash: u64) -> Output {
        let Scene { experiment, spec, profile, .. } = *self;
        let names = played.names.clone();
        let name = |ioc: u64| match ioc == played.journal {
            true => "journal".to_owned(),
            false => names.name(ioc as u32).to_owned(),
        };
        let collector = played.collector.take().expect("taken once");
        let mut collected = collector.finish(played.end, name);
        let mut record = RunRecord {
            schema: SCHEMA,
            experiment: experiment.name.clone(),
            digest: experiment.digest.clone(),
            made: Made::default(),
            key: spec.key.clone(),
            seconds: (played.end - played.start).as_secs_f64(),
            event_hash: format!("{hash:016x}"),
            values: BTreeMap::new(),
            counts: BTreeMap::new(),
            idle_ns: std::mem::take(&mut collected.idle_ns),
            notes: Vec::new(),
            spreads: BTreeMap::new(),
            detail: None,
            sum: String::new(),
        };
        fill(&mut record, experiment, &played, collected, &profile.load);
        Output { record, trace: played.trace, names: played.names }
    }
}

/// Counts, metrics, notes and pictures.
fn fill(
    record: &mut RunRecord,
    experiment: &Experiment,
    played: &Played,
    mut collected: Collected,
    load: &LoadSpec,
) {
    figures::counts(record, played, &collected);
    for (name, metric) in &experiment.file.metric {
        if metric.of.as_ref().is_some_and(|of| !played.outcomes.contains_key(of.get_ref())) {
            continue;
        }
        match figures::value(metric, record, &played.outcomes, &collected, load) {
            Ok((value, note)) => {
                record.values.insert(name.clone(), value);
                record.notes.extend(note);
            }
            Err(missing) => record.notes.extend(missing),
        }
    }
    if collected.lost > 0 {
        record.notes.push(format!("{} events were lost: counts are too low", collected.lost));
    }
    record.notes.sort();
    record.notes.dedup();
    if let Some(detail) = &mut collected.detail {
        for outcome in played.outcomes.values() {
            detail.series.extend(outcome.series.iter().cloned());
            detail.latencies.extend(outcome.latencies.iter().cloned());
        }
    }
    record.detail = collected.detail;
}

/// A run and where it happens.
pub struct Scene<'a> {
    pub experiment: &'a Experiment,
    pub spec: &'a RunSpec,
    pub profile: &'a Profile,
    pub keep_trace: bool,
}

/// A mounted file system on a modelled device.
struct Stage {
    device: Arc<ModelDevice>,
    queue: Arc<Queue>,
    mounted: Mounted,
}

impl Scene<'_> {
    fn build(&self, cx: &mut Cx, image: &BaseImage) -> Result<Stage, String> {
        let memory = Arc::new(image.memory.fork());
        let device = self.profile.device(cx.runtime(), memory).map_err(|e| e.to_string())?;
        let variant = &self.spec.variant;
        let elevator = variant.elevator.as_ref().map_or("none", |name| name.get_ref());
        let mut config = self.profile.queue_config(elevator);
        config.controller = variant.controller.as_ref().map(|name| name.get_ref().clone());
        config.trace_events = RING;
        config.sync_writes = SyncWrites { noidle: variant.noidle.unwrap_or(false) };
        let top = Arc::new(Forgetful::new(device.clone()));
        let queue = Queue::new(cx.runtime(), top, config).map_err(|e| e.to_string())?;
        for (name, share) in &self.spec.groups {
            queue.set_group(self.cgroup(Some(name)), share);
        }
        let tunables = tunables(variant);
        let tunables = tunables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        self.profile.tune(&queue, tunables).map_err(|error| error.to_string())?;
        let limit = self.experiment.file.machine.memory.0;
        let pages = PageCache::new(cx.runtime(), PageCacheConfig::with_limit(limit));
        let filesystem = &self.experiment.file.filesystem[&self.spec.key.filesystem];
        let options =
            More { text: variant.mount.text(), page_size: Some(self.profile.page_size as u32) };
        let mounted = Mounted::mount(cx, &queue, &pages, filesystem, options)?;
        device.forget_content();
        Ok(Stage { device, queue, mounted })
    }

    fn play(&self, cx: &mut Cx, image: &BaseImage) -> Result<Played, String> {
        let stage = self.build(cx, image)?;
        let target = Target::ours(Namespace::new(stage.mounted.fs.clone()), b"/");
        stage.queue.drain(cx);
        let _before_the_start = stage.queue.take_trace();
        let start = cx.now();
        let end = start + Nanos((self.spec.seconds * 1e9) as u64);
        let stop = Stop::at(end);
        let watch = Watch::begin(
            cx,
            &stage.queue,
            Collector::new(start, end, self.spec.detail),
            self.keep_trace,
        );
        let before = stage.queue.stats();
        let model = stage.device.stats();
        let commits = stage.mounted.commits();
        let tasks = self.spawn(cx, &target, &stop);
        let mut outcomes = BTreeMap::new();
        for (name, task) in tasks {
            let outcome = task.join(cx).map_err(|error| format!("{name}: {error}"))?;
            outcomes.insert(name, outcome);
            // The first workload to end by itself, its lines done, ends the others too.
            stop.request();
        }
        let end = cx.now().min(end);
        let (collector, trace) = watch.end(cx, &stage.queue);
        let after = stage.queue.stats();
        let stats = stage.device.stats();
        let journal = stage.mounted.journal_ioc().unwrap_or(u64::MAX);
        Ok(Played {
            start,
            end,
            journal,
            outcomes,
            stats: since(&before, after),
            model: ModelStats {
                commands: stats.commands - model.commands,
                member_commands: stats.member_commands - model.member_commands,
                segments: stats.segments - model.segments,
                ..stats
            },
            commits: stage.mounted.commits() - commits,
            collector: Some(collector),
            trace,
            names: stage.queue.task_names(),
        })
    }

    /// The control group of that name, from 1 in the order of names; none is the root group.
    fn cgroup(&self, name: Option<&String>) -> Cgroup {
        let place = name.and_then(|name| self.spec.groups.keys().position(|one| one == name));
        place.map_or(Cgroup::ROOT, |place| Cgroup(place as u32 + 1))
    }

    fn spawn(&self, cx: &Cx, target: &Target, stop: &Stop) -> Tasks {
        let start = |load: &Load| {
            let lines = self.spec.lines.as_ref().filter(|(of, _)| *of == load.name);
            let (lines, load) = (lines.map(|(_, count)| *count), load.clone());
            let (target, stop, name) = (target.clone(), stop.clone(), load.name.clone());
            let cgroup = self.cgroup(load.group.as_ref());
            let run = move |cx: &mut Cx| {
                cx.set_cgroup(cgroup);
                // Nobody starts two tools in the same nanosecond: the seed chooses their phase.
                let phase = cx.rng().below(PHASE.0);
                cx.sleep(Nanos(phase));
                loads::run(cx, &target, &load, &stop, lines)
            };
            (name.clone(), cx.spawn(&name, run))
        };
        self.spec.loads.iter().map(start).collect()
    }
}

type Tasks = Vec<(String, JoinHandle<Result<Outcome, String>>)>;

/// The counters of `after` without those of `before` that this crate reads.
fn since(before: &block::QueueStats, mut after: block::QueueStats) -> block::QueueStats {
    after.reads -= before.reads;
    after.writes -= before.writes;
    after.read_bytes -= before.read_bytes;
    after.write_bytes -= before.write_bytes;
    after.flushes -= before.flushes;
    after.bios -= before.bios;
    after
}

/// The task that empties the queue's ring.
struct Watch {
    shared: Arc<SpinLock<(Collector, Vec<TraceEvent>)>>,
    over: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Watch {
    fn begin(cx: &Cx, queue: &Arc<Queue>, collector: Collector, keep: bool) -> Watch {
        let shared = Arc::new(SpinLock::named("lab collector", (collector, Vec::new())));
        let over = Arc::new(AtomicBool::new(false));
        let task = {
            let (queue, shared, over) = (queue.clone(), shared.clone(), over.clone());
            cx.spawn("lab-watch", move |cx| {
                while !over.load(Ordering::Relaxed) {
                    cx.sleep(LOOK);
                    look(&queue, &shared, keep);
                }
            })
        };
        Watch { shared, over, task }
    }

    fn end(self, cx: &mut Cx, queue: &Queue) -> (Collector, Vec<TraceEvent>) {
        look(queue, &self.shared, false);
        self.over.store(true, Ordering::Relaxed);
        self.task.join(cx);
        let mut shared = self.shared.lock_irq();
        let nothing = Collector::new(Nanos::ZERO, Nanos::ZERO, false);
        (std::mem::replace(&mut shared.0, nothing), std::mem::take(&mut shared.1))
    }
}

fn look(queue: &Queue, shared: &SpinLock<(Collector, Vec<TraceEvent>)>, keep: bool) {
    let (events, lost) = queue.take_trace();
    let mut shared = shared.lock_irq();
    if keep {
        shared.1.extend_from_slice(&events);
    }
    shared.0.take(&events, lost);
}
