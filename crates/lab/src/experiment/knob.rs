//! Numbers of the modelled machine that a sweep varies.

use model::{DeviceSpec, Profile};
use serde::Deserialize;

/// A number of a machine that a sweep may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Bytes of a stripe's chunk.
    Chunk,
    /// Commands that a member of a stripe takes at once.
    Tags,
    /// Bytes of a page.
    PageSize,
}

impl Knob {
    /// Its name in experiments.
    pub const fn name(self) -> &'static str {
        match self {
            Knob::Chunk => "chunk",
            Knob::Tags => "tags",
            Knob::PageSize => "page_size",
        }
    }

    /// The machine with another number.
    ///
    /// # Errors
    /// The machine has no such number, or cannot have that one.
    pub fn apply(self, profile: &Profile, value: u64) -> Result<Profile, String> {
        let mut profile = profile.clone();
        let power = |from: u64, to: u64| value.is_power_of_two() && (from..=to).contains(&value);
        let fits = match (self, &mut profile.device) {
            (Knob::Chunk, DeviceSpec::Stripe(params, _)) if power(4096, 1 << 30) => {
                params.chunk = value;
                true
            }
            (Knob::Tags, DeviceSpec::Stripe(params, _)) if (1..=65536).contains(&value) => {
                params.tags = value as u32;
                true
            }
            (Knob::PageSize, _) if power(4096, 65536) => {
                profile.page_size = value;
                true
            }
            _ => false,
        };
        let name = self.name();
        if fits { Ok(profile) } else { Err(format!("no machine of this kind has {name} {value}")) }
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
