//! Devices in memory behind the times of a modelled one.

use std::sync::Arc;

use block::Device;
use device::MemoryDevice;
use model::{ModelDevice, Profile};
use rt::Cx;

/// Flash with a volatile write buffer.
pub const FLASH: &str = "flash-nvme";
/// Flash whose write buffer survives a power cut.
pub const SAFE_FLASH: &str = "flash-sata";
/// A hard disk with a volatile write cache.
pub const DISK: &str = "disk-7200-wc";

/// `memory` behind the times of the device of a built-in machine ([`model::names`]).
///
/// # Panics
/// There is no such machine, or its device is smaller.
pub fn modelled(cx: &Cx, machine: &str, memory: Arc<MemoryDevice>) -> Arc<ModelDevice> {
    let device = Profile::built_in(machine).device(cx.runtime(), memory);
    device.unwrap_or_else(|error| panic!("{machine}: {error}"))
}

/// The device itself, done at once, or behind the times of flash or of a disk: by the seed.
pub fn timed(cx: &Cx, memory: &Arc<MemoryDevice>, seed: u64) -> Arc<dyn Device> {
    match seed % 3 {
        0 => memory.clone(),
        1 => modelled(cx, FLASH, memory.clone()),
        _ => modelled(cx, DISK, memory.clone()),
    }
}
