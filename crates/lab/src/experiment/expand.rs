//! From a file to the runs that it asks for.

use std::collections::{BTreeMap, BTreeSet};

use block::control::GroupShare;
use model::Profile;
use serde::{Deserialize, Serialize};

use super::file::{File, OptionText, Share, Sweep, Table, Tool, Variant, Vary};
use super::knob::Knob;
use super::value::SeedRange;
use super::{Experiment, Name};
use crate::stats::abba;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Few seeds, few points.
    #[default]
    Quick,
    /// Everything.
    Full,
}

impl Size {
    fn is_quick(&self) -> bool {
        *self == Size::Quick
    }
}

/// One value of what a sweep varies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Point {
    /// What is varied: `tunable hz`, `fs_mark -s`.
    pub vary: String,
    /// Its value.
    pub value: u64,
}

/// Seeds of a sweep in a full run: its lines are medians, and no test asks for more.
const SWEEP_SEEDS: usize = 3;

/// Which run: together with the experiment's text it decides everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct RunKey {
    /// The file system.
    pub filesystem: String,
    /// The case.
    pub case: String,
    /// The sweep's point, in a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
    /// The variant.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    /// Full where the run itself does more than a quick one.
    #[serde(default, skip_serializing_if = "Size::is_quick")]
    pub size: Size,
}

impl std::fmt::Display for RunKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.filesystem, self.case, self.variant)?;
        if let Some(point) = &self.point {
            write!(f, " {}={}", point.vary, point.value)?;
        }
        write!(f, " seed {}", self.seed)?;
        if self.size == Size::Full { write!(f, " full") } else { Ok(()) }
    }
}

/// A workload as its tool takes it, after a sweep's changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// The tool.
    pub tool: Tool,
    /// The command line, or the job file.
    pub text: String,
    /// The control group that it runs in, where not in the root group.
    pub group: Option<String>,
}

/// Everything that a run needs, apart from machine and file system.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// Which run, of the first variant.
    pub key: RunKey,
    /// The variants that take turns in it; of what is not measured only that of the key.
    pub turns: Vec<String>,
    /// It takes real time.
    pub measured: bool,
    /// What a program takes.
    pub with: toml::Table,
    /// The variant with everything that it inherits.
    pub variant: Variant,
    /// What of the machine are other numbers.
    pub machine: Vec<Varied>,
    /// What each control group is given, by name.
    pub groups: BTreeMap<String, GroupShare>,
    /// The workloads.
    pub loads: Vec<Load>,
    /// Simulated seconds.
    pub seconds: f64,
    /// The run also ends when this workload has so many lines.
    pub lines: Option<(String, u32)>,
    /// Events are kept for pictures.
    pub detail: bool,
}

/// Another number of the machine.
#[derive(Clone, Debug)]
pub struct Varied {
    /// Which number.
    pub knob: Knob,
    /// Its value.
    pub value: u64,
    /// The value's unit.
    pub unit: String,
}

impl Varied {
    /// The machine with it.
    ///
    /// # Errors
    /// As [`Knob::apply`].
    pub fn apply(&self, profile: &Profile) -> Result<Profile, String> {
        self.knob.apply(profile, self.value, &self.unit)
    }
}

impl RunSpec {
    /// The key of one of its variants.
    pub fn key_of(&self, variant: &str) -> RunKey {
        RunKey { variant: variant.to_owned(), ..self.key.clone() }
    }

    /// Another value of what can be varied.
    pub(crate) fn set(&mut self, vary: &Vary, value: u64, unit: &str) {
        let mut each = |workload: &Name, change: &dyn Fn(&str) -> String| {
            let of = self.loads.iter_mut().filter(|load| load.name == *workload.get_ref());
            of.for_each(|load| load.text = change(&load.text));
        };
        match vary {
            Vary::Machine(knob) => {
                let (knob, unit) = (knob.clone(), unit.to_owned());
                self.machine.push(Varied { knob, value, unit });
            }
            Vary::Mount(name) => {
                let text = format!("{},{}={value}", self.variant.mount.text(), name.get_ref());
                self.variant.mount = OptionText(Some(toml::Spanned::new(name.span(), text)));
            }
            Vary::Tunable(name) => {
                let value = toml::Value::Integer(value as i64);
                self.variant.tunables.insert(name.get_ref().clone(), value);
            }
            Vary::Job { workload, key } => {
                each(workload, &|text| with_key(text, key.get_ref(), value));
            }
            Vary::Option { workload, option } => {
                each(workload, &|text| with_option(text, option.get_ref(), value));
            }
        }
    }

    /// The keys of the records that it gives.
    pub fn keys(&self) -> impl Iterator<Item = RunKey> {
        self.turns.iter().map(|variant| self.key_of(variant))
    }
}

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Quick or full.
    pub size: Size,
    /// Seeds, where not those of the file.
    pub seeds: Option<SeedRange>,
    /// Only these variants; all where it is empty.
    pub variants: Vec<String>,
    /// Only these cases; all where it is empty.
    pub cases: Vec<String>,
    /// Only these file systems; all where it is empty.
    pub filesystems: Vec<String>,
    /// No sweeps.
    pub no_sweeps: bool,
    /// Only what a look at all experiments needs: no sweeps, no tables that say so.
    pub brief: bool,
}

/// The variant of that name with everything that it inherits.
pub(super) fn variant(file: &File, name: &str) -> Variant {
    let own = file.variant[name].clone();
    let Some(like) = &own.like else { return own };
    let base = variant(file, like.get_ref());
    let tunables = base.tunables.into_iter().chain(own.tunables).collect();
    Variant {
        title: own.title,
        note: own.note,
        like: None,
        elevator: own.elevator.or(base.elevator),
        controller: own.controller.or(base.controller),
        groups: base.groups.into_iter().chain(own.groups).collect(),
        tunables,
        mount: if own.mount.0.is_some() { own.mount } else { base.mount },
        noidle: own.noidle.or(base.noidle),
    }
}

impl Experiment {
    /// The runs of a plan, each once, variants and seeds in the order ABBA.
    ///
    /// # Errors
    /// Where the plan names a variant that the experiment does not have.
    pub fn runs(&self, plan: &Plan) -> Result<Vec<RunSpec>, super::ExperimentError> {
        self.exist("--variant", &plan.variants, self.file.variant.keys())?;
        self.exist("--case", &plan.cases, self.file.case.keys())?;
        self.exist("--filesystem", &plan.filesystems, self.file.filesystem.keys())?;
        let mut all = Runs { experiment: self, plan, seen: BTreeSet::new(), specs: Vec::new() };
        self.file.table.iter().for_each(|table| {
            let full = plan.size == Size::Full;
            let cases = table.all_cases(plan.size);
            if full || !(table.full_only || table.named_only && plan.brief) {
                all.table(&table.filesystems, &table.variants, &cases);
            }
            if full {
                all.table(&table.full_filesystems, &table.variants, &cases);
            }
        });
        if let Some(frontier) = &self.file.frontier {
            all.group(
                frontier.filesystem.get_ref(),
                frontier.case.get_ref(),
                &frontier.variants,
                None,
            );
        }
        if !plan.no_sweeps && !plan.brief {
            self.file.sweep.iter().for_each(|sweep| all.sweep(sweep));
        }
        Ok(all.specs)
    }

    /// What a program takes for a case.
    pub fn with(&self, case: &str, size: Size) -> toml::Table {
        let (file, case) = (&self.file, &self.file.case[case]);
        let mut with = file.with.clone();
        let full = |table| if size == Size::Full { table } else { toml::Table::new() };
        with.extend(full(file.full.clone()));
        with.extend(case.with.clone());
        with.extend(full(case.full.clone()));
        with
    }

    /// Full where a case does more in a full run.
    fn size_of(&self, case: &str, size: Size) -> Size {
        let as_long = self.file.case[case].quick_seconds.is_none();
        match as_long && self.with(case, size) == self.with(case, Size::Quick) {
            true => Size::Quick,
            false => size,
        }
    }

    fn exist<'a>(
        &self,
        option: &str,
        names: &[String],
        known: impl Iterator<Item = &'a String> + Clone,
    ) -> Result<(), super::ExperimentError> {
        match names.iter().find(|name| known.clone().all(|one| !is_meant(name, one))) {
            None => Ok(()),
            Some(name) => Err(super::ExperimentError::Option {
                experiment: self.name.clone(),
                option: format!("{option} {name}"),
                known: known.cloned().collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

/// Whether an option means this name: `curve-*` means all that begin so.
fn is_meant(option: &str, name: &str) -> bool {
    option.strip_suffix('*').map_or(option == name, |start| name.starts_with(start))
}

/// What a sweep sets for one of its points.
type Setting<'a> = (&'a Sweep, u64);

struct Runs<'a> {
    experiment: &'a Experiment,
    plan: &'a Plan,
    seen: BTreeSet<RunKey>,
    specs: Vec<RunSpec>,
}

impl Runs<'_> {
    fn table(&mut self, filesystems: &[Name], variants: &[Name], cases: &[&str]) {
        for filesystem in filesystems {
            for case in cases {
                self.group(filesystem.get_ref(), case, variants, None);
            }
        }
    }

    fn sweep(&mut self, sweep: &Sweep) {
        let full: Vec<u64> = sweep.values.iter().map(|value| *value.get_ref()).collect();
        let (values, more) = match self.plan.size {
            Size::Full => (full, &sweep.full_filesystems[..]),
            Size::Quick => (sweep.quick.clone(), &[][..]),
        };
        for filesystem in std::iter::once(&sweep.filesystem).chain(more) {
            for &value in &values {
                let (filesystem, case) = (filesystem.get_ref(), sweep.case.get_ref());
                self.group(filesystem, case, &sweep.variants, Some((sweep, value)));
            }
        }
    }

    fn group(&mut self, fs: &str, case: &str, variants: &[Name], setting: Option<Setting<'_>>) {
        let among = |list: &[String], name: &str| {
            list.is_empty() || list.iter().any(|wanted| is_meant(wanted, name))
        };
        if !among(&self.plan.filesystems, fs) || !among(&self.plan.cases, case) {
            return;
        }
        let wanted = |name: &&str| among(&self.plan.variants, name);
        let variants: Vec<&str> =
            variants.iter().map(|name| name.get_ref().as_str()).filter(wanted).collect();
        let seeds = &self.experiment.file.seeds;
        let own = if self.plan.size == Size::Full { seeds.full } else { seeds.quick };
        let mut seeds: Vec<u64> = self.plan.seeds.unwrap_or(own).iter().collect();
        if setting.is_some() && self.plan.seeds.is_none() {
            seeds.truncate(if self.plan.size == Size::Quick { 1 } else { SWEEP_SEEDS });
        }
        let measured = self.experiment.file.case[case].measured;
        let key = |variant: usize, round: usize| RunKey {
            filesystem: fs.to_owned(),
            case: case.to_owned(),
            point: setting.map(|(sweep, value)| sweep.point(value)),
            variant: variants[variant].to_owned(),
            seed: seeds[round],
            size: self.experiment.size_of(case, self.plan.size),
        };
        if measured {
            for round in 0..seeds.len() {
                let keys = (0..variants.len()).map(|variant| key(variant, round));
                let new: Vec<RunKey> = keys.filter(|key| self.seen.insert(key.clone())).collect();
                let turns = new.iter().map(|key| key.variant.clone()).collect();
                if let Some(first) = new.into_iter().next() {
                    self.specs.push(RunSpec { turns, ..self.spec(first, setting, false) });
                }
            }
            return;
        }
        for (variant, round) in abba(variants.len(), seeds.len()) {
            let key = key(variant, round);
            if self.seen.insert(key.clone()) {
                let detail = setting.is_none() && round == 0;
                self.specs.push(self.spec(key, setting, detail));
            }
        }
    }

    fn spec(&self, key: RunKey, setting: Option<Setting<'_>>, detail: bool) -> RunSpec {
        let file = &self.experiment.file;
        let case = &file.case[&key.case];
        let (turns, measured) = (vec![key.variant.clone()], case.measured);
        let with = self.experiment.with(&key.case, self.plan.size);
        let variant = variant(file, &key.variant);
        let mut loads: Vec<Load> = case.run.iter().map(|name| load(file, name.get_ref())).collect();
        let own = case.seconds_of.get(&key.variant).copied().unwrap_or(case.seconds);
        let most = case.quick_seconds.filter(|_| self.plan.size.is_quick());
        let own = own.min(most.unwrap_or(own));
        let seconds = setting.and_then(|(sweep, _)| sweep.seconds).unwrap_or(own);
        loads.iter_mut().for_each(|load| {
            load.group = case.groups.get(&load.name).map(|name| name.get_ref().clone());
        });
        let groups = shares(file, &variant);
        let lines = case.lines.as_ref().map(|lines| (lines.of.get_ref().clone(), lines.count));
        let mut spec = RunSpec {
            key,
            turns,
            measured,
            with,
            variant,
            machine: Vec::new(),
            groups,
            loads,
            seconds,
            lines,
            detail,
        };
        if let Some((sweep, value)) = setting {
            spec.set(&sweep.vary, value, &sweep.unit);
        }
        spec
    }
}

/// What each control group is given under a variant.
fn shares(file: &File, variant: &Variant) -> BTreeMap<String, GroupShare> {
    let share = |(name, share): (&String, &Share)| {
        let own = variant.groups.get(name).cloned().unwrap_or_default();
        let given = share.with(&own).of_queue().expect("checked with the file");
        (name.clone(), given)
    };
    file.group.iter().map(share).collect()
}

fn load(file: &File, name: &str) -> Load {
    let workload = &file.workload[name];
    let text = workload.args.as_ref().or(workload.job.as_ref());
    Load {
        name: name.to_owned(),
        tool: workload.tool,
        text: text.map(|text| text.get_ref().clone()).unwrap_or_default(),
        group: None,
    }
}

/// The command line with the word after `option` replaced, or with both added.
fn with_option(line: &str, option: &str, value: u64) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match words.iter().position(|word| word == option) {
        Some(place) if place + 1 < words.len() => words[place + 1] = value.to_string(),
        _ => words.extend([option.to_owned(), value.to_string()]),
    }
    words.join(" ")
}

/// The job file with the value of a key replaced in each job that has it, or with it added to the
/// last one.
fn with_key(job: &str, key: &str, value: u64) -> String {
    let is_key = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
    let new = format!("{key}={value}");
    let mut lines: Vec<&str> = job.lines().collect();
    if lines.iter().any(|line| is_key(line)) {
        lines.iter_mut().filter(|line| is_key(line)).for_each(|line| *line = &new);
    } else {
        lines.push(&new);
    }
    lines.join("\n")
}

impl Table {
    /// The cases that it shows.
    pub fn all_cases(&self, size: Size) -> Vec<&str> {
        let columns = self.columns.iter().filter_map(|name| name.get_ref().split_once('.'));
        let mut cases: Vec<&str> = columns.map(|(case, _)| case).collect();
        cases.dedup();
        let full = if size == Size::Full { &self.full_cases[..] } else { &[] };
        let own = self.cases.iter().chain(full).map(|name| name.get_ref().as_str());
        cases.extend(own);
        cases
    }
}

impl Sweep {
    /// One of its values, where it varies a number of the machine.
    pub(super) fn varied(&self, knob: &Knob, value: u64) -> Varied {
        Varied { knob: knob.clone(), value, unit: self.unit.clone() }
    }

    /// The point of one of its values.
    pub fn point(&self, value: u64) -> Point {
        Point { vary: self.vary.name(), value }
    }
}

impl Vary {
    /// What is varied, in words.
    pub fn name(&self) -> String {
        match self {
            Vary::Tunable(name) => format!("tunable {}", name.get_ref()),
            Vary::Machine(knob) => format!("machine {}", knob.name()),
            Vary::Mount(name) => format!("mount {}", name.get_ref()),
            Vary::Job { workload, key } => format!("{} {}", workload.get_ref(), key.get_ref()),
            Vary::Option { workload, option } => {
                format!("{} {}", workload.get_ref(), option.get_ref())
            }
        }
    }
}

/// The tunables of a variant as name and text.
pub(crate) fn tunables(variant: &Variant) -> BTreeMap<String, String> {
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    variant.tunables.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}
