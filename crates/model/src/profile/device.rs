//! The section `[device]`: one kind of device and its parameters.

use super::{Parameter, ProfileError, Section};
use crate::array::{Array, ArrayParams};
use crate::disk::{Disk, DiskParams};
use crate::flash::{Flash, FlashParams};
use crate::machine::Machine;
use crate::memory::{Memory, MemoryParams};
use crate::quantity::Bytes;
use crate::stripe::{Stripe, StripeParams};
use device::stripe::Cutter;

/// A device and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceSpec {
    /// An enterprise array.
    Array(ArrayParams),
    /// A hard disk.
    Disk(DiskParams),
    /// A flash device.
    Flash(FlashParams),
    /// A stripe over members of one kind.
    Stripe(StripeParams, Box<DeviceSpec>),
    /// Memory behind a bus.
    Memory(MemoryParams),
}

/// What a device reports to the host about itself.
pub(crate) struct Traits {
    pub volatile_cache: bool,
    pub fua: bool,
    pub discard: bool,
    pub rotational: bool,
    pub physical_block: u32,
}

/// Names of the kinds, for messages.
const KINDS: &str = "\"array\", \"disk\", \"flash\", \"memory\", \"stripe\"";

impl DeviceSpec {
    /// Bytes of a chunk, where the device is a stripe.
    pub(crate) fn chunk(&self) -> u32 {
        match self {
            DeviceSpec::Stripe(params, _) => params.chunk as u32,
            _ => 0,
        }
    }

    pub(crate) fn read(section: Section<'_>) -> Result<(DeviceSpec, Vec<Parameter>), ProfileError> {
        let kind: String = section.need("kind")?;
        let spec = match kind.as_str() {
            "array" => DeviceSpec::Array(read_array(&section)?),
            "disk" => DeviceSpec::Disk(read_disk(&section)?),
            "flash" => DeviceSpec::Flash(read_flash(&section)?),
            "stripe" => return read_stripe(section),
            "memory" => DeviceSpec::Memory(read_memory(&section)?),
            _ => return Err(section.wrong("kind", format!("give one of {KINDS}"))),
        };
        Ok((spec, section.finish()?))
    }

    /// The kind as it is written in a profile.
    pub fn kind(&self) -> &'static str {
        match self {
            DeviceSpec::Array(_) => "array",
            DeviceSpec::Disk(_) => "disk",
            DeviceSpec::Flash(_) => "flash",
            DeviceSpec::Stripe(..) => "stripe",
            DeviceSpec::Memory(_) => "memory",
        }
    }

    /// The state machine for a device of `sectors` sectors, or what does not fit.
    pub(crate) fn machine(&self, sectors: u64) -> Result<Box<dyn Machine>, String> {
        Ok(match self {
            DeviceSpec::Array(params) => Box::new(Array::new(params.clone(), sectors)),
            DeviceSpec::Disk(params) => {
                let disk = Disk::new(params.clone());
                fits(sectors, disk.capacity())?;
                Box::new(disk)
            }
            DeviceSpec::Flash(params) => Box::new(Flash::new(params.clone())),
            DeviceSpec::Stripe(params, member) => {
                let chunk = params.chunk / 512;
                let stripes = sectors.div_ceil(chunk * params.members as u64);
                let make = || member.machine(stripes * chunk);
                let mut machines = std::iter::repeat_with(make)
                    .take(params.members)
                    .collect::<Result<Vec<_>, _>>()?;
                let next = || machines.pop().expect("as many as there are members");
                Box::new(Stripe::new(params.clone(), next))
            }
            DeviceSpec::Memory(params) => Box::new(Memory::new(params.clone())),
        })
    }

    pub(crate) fn traits(&self) -> Traits {
        match self {
            DeviceSpec::Array(_) => Traits {
                volatile_cache: false,
                fua: false,
                discard: false,
                rotational: true,
                physical_block: 512,
            },
            DeviceSpec::Disk(params) => Traits {
                volatile_cache: params.write_cache > 0 && params.volatile,
                fua: true,
                discard: false,
                rotational: true,
                physical_block: 512,
            },
            DeviceSpec::Flash(params) => Traits {
                volatile_cache: params.volatile,
                fua: true,
                discard: true,
                rotational: false,
                physical_block: 4096,
            },
            DeviceSpec::Stripe(_, member) => Traits { discard: false, ..member.traits() },
            DeviceSpec::Memory(_) => Traits {
                volatile_cache: false,
                fua: false,
                discard: true,
                rotational: false,
                physical_block: 4096,
            },
        }
    }
}

fn read_array(section: &Section<'_>) -> Result<ArrayParams, ProfileError> {
    let chunk = |key| Ok(sectors(section, key, 8, 1 << 17)? * 512);
    Ok(ArrayParams {
        write_latency: section.need("write_latency")?,
        read_delays_write: section.need("read_delays_write")?,
        read_hit_latency: section.need("read_hit_latency")?,
        random_read: section.need("random_read")?,
        spindles: section.count("spindles", 1..=4096)?,
        port_rate: section.need("port_rate")?,
        stream_rate: section.need("stream_rate")?,
        prefetch_chunk: chunk("prefetch_chunk")?,
        prefetch_window: chunk("prefetch_window")?,
        streams: section.count("streams", 1..=1024)? as usize,
        write_cache: section.need::<Bytes>("write_cache")?.0,
        destage_rate: section.need("destage_rate")?,
        destage_seek: section.need("destage_seek")?,
    })
}

fn fits(sectors: u64, capacity: u64) -> Result<(), String> {
    match sectors <= capacity {
        true => Ok(()),
        false => Err(format!(
            "{} bytes do not fit on its device of {} bytes",
            sectors * 512,
            capacity * 512
        )),
    }
}

/// Sectors of 512 bytes that a size has, from `low` to `high`.
fn sectors(
    section: &Section<'_>,
    key: &'static str,
    low: u64,
    high: u64,
) -> Result<u64, ProfileError> {
    let Bytes(bytes) = section.need(key)?;
    match bytes.is_multiple_of(512) && (low..=high).contains(&(bytes / 512)) {
        true => Ok(bytes / 512),
        false => {
            let (low, high) = (low * 512, high * 512);
            Err(section.wrong(key, format!("give whole sectors of 512 B, {low} B to {high} B")))
        }
    }
}

fn read_disk(section: &Section<'_>) -> Result<DiskParams, ProfileError> {
    let params = DiskParams {
        rpm: section.count("rpm", 300..=60_000)?,
        heads: section.count("heads", 1..=256)?,
        cylinders: section.count("cylinders", 2..=100_000_000)?,
        zones: section.count("zones", 1..=1024)?,
        outer_track: section.count("outer_track_sectors", 8..=1_000_000)?,
        inner_track: section.count("inner_track_sectors", 8..=1_000_000)?,
        track_seek: section.need("track_seek")?,
        average_seek: section.need("average_seek")?,
        full_seek: section.need("full_seek")?,
        write_settle: section.need("write_settle")?,
        head_switch: section.need("head_switch")?,
        command_overhead: section.need("command_overhead")?,
        bus: section.need("bus_rate")?,
        segments: section.count("segments", 1..=4096)? as usize,
        segment: sectors(section, "segment_size", 8, 1 << 21)? * 512,
        write_cache: section.need::<Bytes>("write_cache")?.0,
        volatile: section.or("volatile", true)?,
        destage_idle: section.need("destage_idle")?,
        age_limit: section.need("age_limit")?,
    };
    if params.inner_track > params.outer_track {
        return Err(section.wrong("inner_track_sectors", "give at most outer_track_sectors"));
    }
    if params.zones > params.cylinders {
        return Err(section.wrong("zones", "give at most as many as there are cylinders"));
    }
    if params.average_seek < params.track_seek {
        return Err(section.wrong("average_seek", "give at least track_seek"));
    }
    if params.full_seek < params.average_seek {
        return Err(section.wrong("full_seek", "give at least average_seek"));
    }
    Ok(params)
}

fn read_flash(section: &Section<'_>) -> Result<FlashParams, ProfileError> {
    let params = FlashParams {
        channels: section.count("channels", 1..=256)? as usize,
        dies: section.count("dies_per_channel", 1..=256)? as usize,
        page: sectors(section, "page_size", 1, 1 << 13)? * 512,
        block_pages: section.count("pages_per_block", 1..=65536)?,
        read: section.need("page_read")?,
        program: section.need("page_program")?,
        erase: section.need("block_erase")?,
        channel: section.need("channel_rate")?,
        bus: section.need("bus_rate")?,
        read_overhead: section.need("read_overhead")?,
        write_overhead: section.need("write_overhead")?,
        command: section.need("command_time")?,
        flush_overhead: section.need("flush_overhead")?,
        buffer: section.need::<Bytes>("write_buffer")?.0,
        volatile: section.need("volatile")?,
        amplification: section.need("random_write_amplification")?,
    };
    if params.buffer < 2 * params.page {
        return Err(section.wrong("write_buffer", "give at least two pages (page_size)"));
    }
    if !(1.0..=100.0).contains(&params.amplification) {
        return Err(section.wrong("random_write_amplification", "give a number from 1 to 100"));
    }
    Ok(params)
}

fn read_stripe(section: Section<'_>) -> Result<(DeviceSpec, Vec<Parameter>), ProfileError> {
    let params = StripeParams {
        members: section.count("members", 1..=1024)? as usize,
        chunk: sectors(&section, "chunk", 1, 1 << 21)? * 512,
        tags: section.count("tags", 1..=1024)? as u32,
        max_bytes: sectors(&section, "member_max_size", 8, 1 << 16)? * 512,
        elevator: section.count_or("elevator", 0..=1, 0)? == 1,
        cutter: match section.or("cutter", "sectors".to_owned())?.as_str() {
            "segments" => Cutter::Segments,
            "sectors" => Cutter::Sectors,
            _ => return Err(section.wrong("cutter", "give \"segments\" or \"sectors\"")),
        },
    };
    let member = section.section("member")?;
    let member = member.ok_or_else(|| section.wrong("member", "write [device.member]"))?;
    let (member, parts) = DeviceSpec::read(member)?;
    if matches!(member, DeviceSpec::Stripe(..)) {
        return Err(section.wrong("member", "give members that are no stripes themselves"));
    }
    if member.traits().volatile_cache {
        return Err(section.wrong("member", "give members whose cache is not volatile"));
    }
    let mut parameters = section.finish()?;
    parameters.extend(parts);
    Ok((DeviceSpec::Stripe(params, Box::new(member)), parameters))
}

fn read_memory(section: &Section<'_>) -> Result<MemoryParams, ProfileError> {
    Ok(MemoryParams {
        read_latency: section.need("read_latency")?,
        write_latency: section.need("write_latency")?,
        rate: section.need("rate")?,
    })
}
