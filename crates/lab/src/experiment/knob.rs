//! Numbers of the modelled machine that a sweep varies.

use model::{DeviceSpec, Profile};
use serde::Deserialize;

/// A number of a machine that a sweep varies: its section and key in the profile, as
/// `cpu.allocate_run` or `device.member.rpm`. `chunk`, `tags` and `page_size` are short for those
/// of a stripe and of the machine, in bytes and commands.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Knob(String);

impl Knob {
    /// Its name in experiments.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The machine with another number, in the unit of the sweep where the number takes one.
    ///
    /// # Errors
    /// The machine has no such number, or cannot have that one.
    pub fn apply(&self, profile: &Profile, value: u64, unit: &str) -> Result<Profile, String> {
        let (key, unit) = match self.name() {
            "chunk" => ("device.chunk", "B"),
            "page_size" => ("machine.page_size", "B"),
            "tags" => ("device.tags", ""),
            other => (other, unit),
        };
        let with_unit = profile.with(key, &format!("{value} {unit}"));
        let bare = |_| profile.with(key, &value.to_string());
        with_unit.or_else(bare).map_err(|error| error.to_string())
    }
}

/// What a stripe of disks can move at most, by their buses: MiB/s, and where the number comes from.
pub fn limit(profile: &Profile) -> Option<(f64, String)> {
    let DeviceSpec::Stripe(params, member) = &profile.device else { return None };
    let DeviceSpec::Disk(disk) = &**member else { return None };
    let bus = disk.bus.0 as f64 / 1_048_576.0;
    let words = format!("the stripe: {} disks of {bus} MiB/s", params.members);
    Some((bus * params.members as f64, words))
}
