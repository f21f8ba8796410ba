//! A machine as a file: what it is, what its processor costs, its device, its queue, its link.
//!
//! ```toml
//! [machine]
//! name = "my-disk"
//! description = "..."
//! source = "..."
//! cpus = 4
//!
//! [device]
//! kind = "memory"
//! read_latency = { value = "2 us", source = "measured with fio" }
//! ```
//!
//! `docs/machines.md` has every key. A key that is not known is refused, and so is a value without
//! its unit; each error names file, line, key, value and what would be accepted.

mod device;
mod error;
mod section;

pub use device::DeviceSpec;
pub use error::ProfileError;
pub use section::Parameter;
pub(crate) use section::{Section, Text};

use crate::quantity::Bytes;
use crate::{LinkParams, ModelDevice};
use ::device::MemoryDevice;
use base::Nanos;
use block::elevator::TunableError;
use block::{DeviceInfo, Queue, QueueConfig};
use rt::{Charge, Charges, Registry, Runtime, WorldConfig};
use std::sync::Arc;
use toml::de::DeTable;

macro_rules! built_in {
    ($($name:literal,)*) => {
        const BUILT_IN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../profiles/", $name, ".toml"))),)*
        ];
    };
}

built_in! {
    "array-2010",
    "disk-7200",
    "disk-7200-wc",
    "sata-2006",
    "ramdisk-2013",
    "flash-sata",
    "flash-nvme",
    "ram",
    "stripe-64fc",
    "nfs-2008",
}

/// Profiles that a program has added.
static ADDED: Registry<&'static str> = Registry::new();

/// Adds a machine to those that are found by name, for as long as the program runs.
///
/// # Errors
/// The name is taken, or is none; the text is no profile, with the line and what would be right.
pub fn register(name: &'static str, text: &'static str) -> Result<(), String> {
    Profile::parse(text, name).map_err(|error| error.to_string())?;
    ADDED.add(built_in(), name, text)
}

fn built_in() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// The names of the profiles that are built in or were added.
pub fn names() -> impl Iterator<Item = &'static str> {
    built_in().chain(ADDED.names())
}

/// How the host's queue in front of the device is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Largest request in sectors of 512 bytes.
    pub max_sectors: u64,
    /// Most segments of a request.
    pub max_segments: u64,
    /// Requests that may exist at once, each for synchronous and asynchronous ones.
    pub nr_requests: u64,
    /// Commands that the device takes at once.
    pub depth: u64,
    /// Hardware queues of the device.
    pub hw_queues: u64,
}

/// What moving data costs all processors together, beside what a task is charged: the processor
/// columns of tables that show them for the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSpec {
    /// System time of a command of a device (of a member, of a stripe).
    pub system_command: Nanos,
    /// System time of a piece of memory.
    pub system_segment: Nanos,
    /// Time in interrupts of a command.
    pub interrupt_command: Nanos,
    /// Time in interrupts of a piece of memory.
    pub interrupt_segment: Nanos,
}

/// A modelled machine.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// One sentence that says what it is.
    pub description: String,
    /// Where the profile comes from as a whole.
    pub source: String,
    /// Processors.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Ticks per second of the kernel that is modelled; elevators count in ticks.
    pub hz: u32,
    /// Bytes of a page.
    pub page_size: u64,
    /// What the processor costs.
    pub charges: Charges,
    /// What data cost all processors.
    pub load: LoadSpec,
    /// The device.
    pub device: DeviceSpec,
    /// The host's queue.
    pub queue: QueueSpec,
    /// The network link, if the machine has one.
    pub link: Option<LinkParams>,
    /// Every value of the file in its order, with its source.
    pub parameters: Vec<Parameter>,
    /// The file's text, which can be read again.
    pub text: String,
}

impl Profile {
    /// The built-in profile of that name, or the one in the file of that path.
    ///
    /// # Errors
    /// There is neither; or the file is not a profile, with the line and what would be right.
    pub fn load(name_or_path: &str) -> Result<Profile, ProfileError> {
        let built_in = BUILT_IN.iter().find(|(name, _)| *name == name_or_path);
        if let Some(text) = built_in.map(|(_, text)| *text).or_else(|| ADDED.get(name_or_path)) {
            return Profile::parse(text, &format!("{name_or_path}.toml"));
        }
        let text = std::fs::read_to_string(name_or_path).map_err(|error| {
            let known: Vec<&str> = names().collect();
            ProfileError::NotFound {
                name: name_or_path.to_owned(),
                why: format!("nor a file: {error}"),
                known: known.join(", "),
            }
        })?;
        Profile::parse(&text, name_or_path)
    }

    /// The built-in profile of that name.
    ///
    /// # Panics
    /// There is none: see [`names`].
    pub fn built_in(name: &str) -> Profile {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name).expect("a known name");
        Profile::parse(text, &format!("{name}.toml")).expect("a built-in profile is a profile")
    }

    /// Reads a profile from the text of a file, which errors call `file`.
    ///
    /// # Errors
    /// As [`Profile::load`].
    pub fn parse(text: &str, file: &str) -> Result<Profile, ProfileError> {
        let place = Text { file, text };
        let table = DeTable::parse(text).map_err(|error| ProfileError::Syntax {
            file: file.to_owned(),
            line: place.line(error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        let top = Section::new(&place, "", 0, table.get_ref());
        let missing = |key: &'static str| top.wrong(key, format!("write a section [{key}]"));
        let (machine, device) = (top.section("machine")?, top.section("device")?);
        let cpu = top.section("cpu")?;
        let load = top.section("load")?;
        let queue = top.section("queue")?;
        let link = top.section("link")?;
        top.refuse_strangers()?;
        let device = device.ok_or_else(|| missing("device"))?;
        let mut profile = read_machine(machine.ok_or_else(|| missing("machine"))?)?;
        if let Some(section) = cpu {
            read_charges(section, &mut profile)?;
        }
        if let Some(section) = load {
            read_load(section, &mut profile)?;
        }
        let (spec, parameters) = DeviceSpec::read(device)?;
        profile.device = spec;
        profile.parameters.extend(parameters);
        if let Some(section) = queue {
            read_queue(section, &mut profile)?;
        }
        if let Some(section) = link {
            read_link(section, &mut profile)?;
        }
        profile.text = text.to_owned();
        Ok(profile)
    }

    /// The same machine with another value for one number: its section and key, as
    /// `device.member.rpm`, and the value as a profile has it, with its unit. What follows from the
    /// number in the profile's reader is checked again.
    ///
    /// # Errors
    /// The profile has no such section, the machine no such number, or not that value of it.
    pub fn with(&self, key: &str, value: &str) -> Result<Profile, ProfileError> {
        let unfit = |what: String| ProfileError::Unfit { machine: self.name.clone(), what };
        let mut top: toml::Table =
            toml::from_str(&self.text).map_err(|error| unfit(error.message().to_owned()))?;
        let mut path: Vec<&str> = key.split('.').collect();
        let last = path.pop().unwrap_or_default();
        let mut table = &mut top;
        for part in path {
            let inner = table.get_mut(part).and_then(toml::Value::as_table_mut);
            table = inner.ok_or_else(|| unfit(format!("it has no section for `{key}`")))?;
        }
        // A number or a truth stands bare, everything else is a text.
        let whole = value.parse().map(toml::Value::Integer);
        let part = value.parse().map(toml::Value::Float);
        let truth = value.parse().map(toml::Value::Boolean);
        let bare = whole.ok().or(part.ok()).or(truth.ok());
        let new = bare.unwrap_or_else(|| toml::Value::String(value.to_owned()));
        match table.get_mut(last).and_then(toml::Value::as_table_mut) {
            Some(with_source) => with_source.insert("value".to_owned(), new),
            None => table.insert(last.to_owned(), new),
        };
        let text = toml::to_string(&top).map_err(|error| unfit(error.to_string()))?;
        Profile::parse(&text, &format!("{} with {key} = {value}", self.name))
    }

    /// The same machine with one of its numbers times a factor; a whole number without a unit is
    /// rounded, and moves by one at least.
    ///
    /// # Errors
    /// The machine has no such number, or cannot have that one.
    pub fn scaled(&self, key: &str, factor: f64) -> Result<Profile, ProfileError> {
        let unfit = |what: String| ProfileError::Unfit { machine: self.name.clone(), what };
        let own = self.parameters.iter().find(|one| one.key == key);
        let own = own.ok_or_else(|| unfit(format!("it has no number `{key}`")))?;
        let end = own.value.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (number, unit) = own.value.split_at(end.unwrap_or(own.value.len()));
        let number: f64 =
            number.parse().map_err(|_| unfit(format!("`{key}` is {}, no number", own.value)))?;
        let value = match unit.is_empty() && number.fract() == 0.0 {
            true if factor < 1.0 => (number * factor).round().min(number - 1.0).max(0.0),
            true => (number * factor).round().max(number + f64::from(u8::from(factor > 1.0))),
            false => number * factor,
        };
        let text = format!("{value:.6}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        self.with(key, &format!("{text}{unit}"))
    }

    /// A world with this machine's processors and their costs. Everything else is the default.
    pub fn world_config(&self, seed: u64) -> WorldConfig {
        let charges = self.charges.clone();
        WorldConfig { seed, cpus: self.cpus, charges, ..WorldConfig::default() }
    }

    /// A queue as this machine has it, with that elevator.
    pub fn queue_config(&self, elevator: &str) -> QueueConfig {
        QueueConfig {
            nr_requests: self.queue.nr_requests as u32,
            ..QueueConfig::elevator(elevator)
        }
    }

    /// Sets the machine's ticks where the queue's elevator counts in them, then these tunables of
    /// queue and elevator.
    ///
    /// # Errors
    /// A tunable that neither has, a value that it does not take.
    pub fn tune<'t>(
        &self,
        queue: &Arc<Queue>,
        tunables: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<(), TunableError> {
        if queue.tunables().iter().any(|(name, _)| *name == "hz") {
            queue.set_tunable("hz", &self.hz.to_string())?;
        }
        tunables.into_iter().try_for_each(|(name, value)| queue.set_tunable(name, value))
    }

    /// The modelled device, with the size and content of `memory`.
    ///
    /// # Errors
    /// The machine's device is smaller than `memory`.
    pub fn device(
        &self,
        runtime: &Runtime,
        memory: Arc<MemoryDevice>,
    ) -> Result<Arc<ModelDevice>, ProfileError> {
        let sectors = block::Device::info(&*memory).sectors;
        let machine = self
            .device
            .machine(sectors)
            .map_err(|what| ProfileError::Unfit { machine: self.name.clone(), what })?;
        let info = self.info(block::Device::info(&*memory));
        Ok(Arc::new(ModelDevice::new(runtime, self.name.clone(), info, memory, machine)))
    }

    fn info(&self, memory: &DeviceInfo) -> DeviceInfo {
        let traits = self.device.traits();
        DeviceInfo {
            physical_block: traits.physical_block.max(memory.logical_block),
            max_bytes: (self.queue.max_sectors * 512) as u32,
            max_segments: self.queue.max_segments as u16,
            volatile_cache: traits.volatile_cache,
            fua: traits.fua,
            discard: traits.discard,
            write_zeroes: false,
            depth: self.queue.depth as u32,
            hw_queues: self.queue.hw_queues as u32,
            rotational: traits.rotational,
            chunk: self.device.chunk(),
            ..memory.clone()
        }
    }
}

fn read_machine(section: Section<'_>) -> Result<Profile, ProfileError> {
    let Bytes(memory) = section.or("memory", Bytes(4 << 30))?;
    let Bytes(page_size) = section.or("page_size", Bytes(4096))?;
    if !page_size.is_power_of_two() || !(4096..=65536).contains(&page_size) {
        return Err(section.wrong("page_size", "give a power of two from 4 KiB to 64 KiB"));
    }
    Ok(Profile {
        name: section.need("name")?,
        description: section.need("description")?,
        source: section.need("source")?,
        cpus: section.count_or("cpus", 1..=4096, 4)? as usize,
        hz: section.count_or("hz", 100..=1000, 1000)? as u32,
        memory,
        page_size,
        charges: Charges::default(),
        load: LoadSpec::default(),
        device: DeviceSpec::Memory(Default::default()),
        queue: QueueSpec {
            max_sectors: 1024,
            max_segments: 128,
            nr_requests: 128,
            depth: 32,
            hw_queues: 1,
        },
        link: None,
        parameters: section.finish()?,
        text: String::new(),
    })
}

fn read_charges(section: Section<'_>, profile: &mut Profile) -> Result<(), ProfileError> {
    for charge in Charge::ALL {
        if let Some(cost) = section.get::<Nanos>(charge.name())? {
            profile.charges.set(charge, cost);
        }
    }
    profile.parameters.extend(section.finish()?);
    Ok(())
}

fn read_load(section: Section<'_>, profile: &mut Profile) -> Result<(), ProfileError> {
    profile.load = LoadSpec {
        system_command: section.or("system_command", Nanos::ZERO)?,
        system_segment: section.or("system_segment", Nanos::ZERO)?,
        interrupt_command: section.or("interrupt_command", Nanos::ZERO)?,
        interrupt_segment: section.or("interrupt_segment", Nanos::ZERO)?,
    };
    profile.parameters.extend(section.finish()?);
    Ok(())
}

fn read_queue(section: Section<'_>, profile: &mut Profile) -> Result<(), ProfileError> {
    profile.queue = QueueSpec {
        max_sectors: section.count_or("max_sectors", 8..=65536, profile.queue.max_sectors)?,
        max_segments: section.count_or("max_segments", 1..=65535, profile.queue.max_segments)?,
        nr_requests: section.count_or("nr_requests", 1..=65536, profile.queue.nr_requests)?,
        depth: section.count_or("depth", 1..=65536, profile.queue.depth)?,
        hw_queues: section.count_or("hw_queues", 1..=1024, profile.queue.hw_queues)?,
    };
    profile.parameters.extend(section.finish()?);
    Ok(())
}

fn read_link(section: Section<'_>, profile: &mut Profile) -> Result<(), ProfileError> {
    let link = LinkParams {
        latency: section.need("latency")?,
        rate: section.need("rate")?,
        per_message: section.or("per_message", Nanos::ZERO)?,
        header: section.or("header", Bytes(0))?.0,
        mtu: section.or("mtu", Bytes(1500))?.0,
    };
    if link.mtu <= link.header {
        return Err(section.wrong("mtu", "give more than the header"));
    }
    profile.link = Some(link);
    profile.parameters.extend(section.finish()?);
    Ok(())
}
