//! LVM2: physical volumes, the text that describes a volume group, and logical volumes that are
//! linear, striped or mirrored.

mod config;
mod group;
mod label;
mod volume;

use std::sync::Arc;

use crate::error::Subject;
use crate::source::Source;
use crate::target::Target;
use crate::{Error, Fact, Image};

/// A physical volume: its own identifier, and the group that it belongs to.
#[derive(Clone, Debug)]
pub struct Physical {
    id: String,
    group: Option<group::Group>,
}

impl Physical {
    /// The name of its group; none for a volume without one.
    pub fn group(&self) -> Option<&str> {
        self.group.as_ref().map(|group| group.name.as_str())
    }

    /// The names of the logical volumes that people see.
    pub fn volumes(&self) -> Vec<String> {
        let group = self.group.iter();
        group.flat_map(|group| group.visible().map(|volume| volume.name.clone())).collect()
    }

    /// What `info` shows of it.
    pub fn facts(&self) -> Vec<(&'static str, Fact)> {
        let mut facts = vec![("uuid", Fact::from(self.id.as_str()))];
        let Some(group) = &self.group else { return facts };
        facts.push(("group", group.name.as_str().into()));
        facts.push(("extent_size", (group.extent * 512).into()));
        facts.push(("sequence", group.sequence.into()));
        let lines = group.visible().map(|volume| volume.describe(group.extent * 512));
        facts.push(("volumes", Fact::Lines(lines.collect())));
        facts.push(("physical_volumes", (group.physical.len() as u64).into()));
        facts
    }
}

/// The physical volume that a device is; none where it is none.
///
/// # Errors
/// The source failed, or the label or the text is damaged.
pub(super) fn recognise(source: &dyn Source) -> Result<Option<Physical>, Error> {
    let subject = Subject { name: source.name().to_owned(), format: "LVM2" };
    let Some(found) = label::read(&subject, source)? else { return Ok(None) };
    let group = found.text.map(|text| group::parse(&subject, &text)).transpose()?;
    Ok(Some(Physical { id: found.id, group }))
}

/// A logical volume of the group that these physical volumes make, by its name.
///
/// # Errors
/// There is none of that name, a physical volume that it needs is missing, or it is of a kind that
/// is not supported.
pub fn open(
    members: Vec<(Physical, Arc<dyn Target>)>,
    group: &str,
    name: &str,
) -> Result<Arc<dyn Image>, Error> {
    let known: Vec<String> =
        members.iter().filter_map(|(member, _)| member.group().map(str::to_owned)).collect();
    let device = members.first().map_or("LVM2", |(_, device)| device.name()).to_owned();
    let subject = Subject { name: device, format: "LVM2" };
    let newest = members
        .iter()
        .filter_map(|(member, _)| member.group.as_ref().filter(|other| other.name == group))
        .max_by_key(|group| group.sequence);
    let Some(newest) = newest.cloned() else {
        let what = format!("there is no volume group `{group}`");
        return Err(subject.unsupported(what, format!("there is: {}", known.join(", "))));
    };
    let devices = members.into_iter().map(|(member, device)| (member.id, device)).collect();
    volume::open(&subject, &newest, devices, name)
}
