//! Writing partition tables.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use gpt::mbr::{PartRecord, ProtectiveMBR};
use gpt::partition::Partition;
use gpt::partition_types::{OperatingSystem, Type};

use super::layout::{Part, Place};
use super::plan::{self, Plan, Table};
use super::types;

/// Characters of a name in a GPT, in UTF-16.
const NAME_MAX: usize = 36;
/// Attributes: started by a legacy BIOS; and of Discoverable Partitions.
const LEGACY_BOOT: u64 = 1 << 2;
const GROW: u64 = 1 << 59;
const READ_ONLY: u64 = 1 << 60;
const NO_AUTO: u64 = 1 << 63;

/// Writes the table of a plan.
///
/// # Errors
/// A type or a name that the table cannot hold; the host refuses.
pub fn write(plan: &Plan, place: &Place, uuid: [u8; 16], file: &File) -> Result<()> {
    match plan.table {
        Table::None => Ok(()),
        Table::Mbr => mbr(plan, place, uuid, file),
        Table::Gpt => guids(plan, place, uuid, file),
    }
}

fn mbr(plan: &Plan, place: &Place, uuid: [u8; 16], file: &File) -> Result<()> {
    if place.parts.len() > 4 {
        bail!("{} partitions; an MBR holds 4, use table = \"gpt\"", place.parts.len());
    }
    let mut record = ProtectiveMBR::new();
    record.set_partition(0, PartRecord::zero());
    let signature: [u8; 4] = uuid[..4].try_into().expect("four of 16 bytes");
    record.set_disk_signature(signature);
    for (index, part) in place.parts.iter().enumerate() {
        let wanted = &plan.partitions[index];
        let sectors = |bytes: u64| u32::try_from(bytes / 512);
        let beyond = || format!("{}: beyond 2 TiB; use table = \"gpt\"", plan.shown(index));
        let entry = PartRecord {
            boot_indicator: if wanted.bootable { 0x80 } else { 0 },
            os_type: types::byte(&wanted.kind).with_context(|| plan.shown(index))?,
            lb_start: sectors(part.offset).with_context(beyond)?,
            lb_size: sectors(part.bytes).with_context(beyond)?,
            // What no geometry reaches.
            start_head: 0xfe,
            start_sector: 0xff,
            start_track: 0xff,
            end_head: 0xfe,
            end_sector: 0xff,
            end_track: 0xff,
        };
        record.set_partition(index, entry);
    }
    // The boot code stays.
    Ok(file.write_all_at(&record.to_bytes()[440..], 440)?)
}

fn guids(plan: &Plan, place: &Place, uuid: [u8; 16], file: &File) -> Result<()> {
    let last = u32::try_from(place.bytes / 512 - 1).unwrap_or(u32::MAX);
    let mut device = file.try_clone()?;
    ProtectiveMBR::with_lb_size(last).overwrite_lba0(&mut device)?;
    let config = gpt::GptConfig::new().writable(true);
    let config = config.logical_block_size(gpt::disk::LogicalBlockSize::Lb512);
    let mut table = config.create_from_device(device, Some(uuid::Uuid::from_bytes(uuid)))?;
    let mut entries = BTreeMap::new();
    for (index, part) in place.parts.iter().enumerate() {
        let entry = entry(&plan.partitions[index], part).with_context(|| plan.shown(index))?;
        entries.insert(index as u32 + 1, entry);
    }
    table.update_partitions(entries)?;
    table.write()?;
    Ok(())
}

fn entry(wanted: &plan::Partition, part: &Part) -> Result<Partition> {
    if wanted.name.encode_utf16().count() > NAME_MAX {
        bail!("a name has at most {NAME_MAX} characters");
    }
    let flags = [
        (wanted.bootable, LEGACY_BOOT),
        (wanted.grow_file_system, GROW),
        (wanted.read_only, READ_ONLY),
        (wanted.no_auto, NO_AUTO),
    ];
    Ok(Partition {
        part_type_guid: Type { guid: types::guid(&wanted.kind)?, os: OperatingSystem::None },
        part_guid: uuid::Uuid::from_bytes(part.uuid),
        first_lba: part.offset / 512,
        last_lba: (part.offset + part.bytes) / 512 - 1,
        flags: flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum(),
        name: wanted.name.clone(),
    })
}
