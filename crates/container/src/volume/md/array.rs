//! The array that members make: a stripe, or mirrors.

use std::sync::Arc;

use super::superblock::Member;
use crate::error::Subject;
use crate::source;
use crate::target::{self, Target};
use crate::volume::{Striped, uuid_text};
use crate::{Error, Fact, Image};

/// One device of an array with what its superblock says.
type Leg = (Member, Arc<dyn Target>);

/// The array of these members. A mirror is read with members missing, and then not written.
///
/// # Errors
/// They are of several arrays, members of a stripe are missing, or the array is of a kind that is
/// not supported.
pub fn assemble(members: Vec<(Member, Arc<dyn Target>)>) -> Result<Arc<dyn Image>, Error> {
    let Some((first, device)) = members.first() else {
        let none = Subject { name: "an array".to_owned(), format: "md" };
        return Err(none.unsupported("it has no members", ""));
    };
    let subject = Subject { name: device.name().to_owned(), format: "md" };
    for (member, device) in &members {
        if member.uuid != first.uuid {
            let (one, two) = (uuid_text(&first.uuid), uuid_text(&member.uuid));
            let what = format!("{} is of the array {two}, not of {one}", device.name());
            return Err(subject.unsupported(what, "give the members of one array"));
        }
        if let Some(obstacle) = member.obstacle() {
            let what = format!("{}: {obstacle}", device.name());
            return Err(subject.unsupported(what, "let mdadm finish it"));
        }
    }
    match first.level {
        0 => stripe(&subject, members),
        1 => mirror(&subject, members),
        _ => {
            let what = format!("an array of level {}", first.level_name());
            Err(subject.unsupported(what, "only raid0 and raid1 are read"))
        }
    }
}

/// The members by their places, each place once.
fn in_order(subject: &Subject, members: Vec<Leg>) -> Result<Vec<Option<Leg>>, Error> {
    let disks = members.first().map_or(0, |(member, _)| member.disks);
    let mut order: Vec<Option<Leg>> = (0..disks).map(|_| None).collect();
    for (member, device) in members {
        let Some(role) = member.role else { continue };
        let name = device.name().to_owned();
        let place = order.get_mut(role as usize).ok_or_else(|| {
            let what = format!("{name} is member {role} of {disks}");
            subject.damaged("roles", what)
        })?;
        if let Some((_, other)) = place {
            let what = format!("{name} and {} are both member {role}", other.name());
            return Err(subject.unsupported(what, "give each member once"));
        }
        *place = Some((member, device));
    }
    Ok(order)
}

/// The places without a member, for people.
fn missing(order: &[Option<Leg>]) -> Vec<String> {
    let gone = order.iter().enumerate().filter(|(_, leg)| leg.is_none());
    gone.map(|(role, _)| role.to_string()).collect()
}

fn stripe(subject: &Subject, members: Vec<Leg>) -> Result<Arc<dyn Image>, Error> {
    let order = in_order(subject, members)?;
    let gone = missing(&order);
    if !gone.is_empty() {
        let what = format!("members {} of {} of a raid0 are missing", gone.join(", "), order.len());
        return Err(subject.unsupported(what, "give all of them: a.img,b.img"));
    }
    let legs: Vec<Leg> = order.into_iter().flatten().collect();
    let chunk = legs.first().map_or(0, |(member, _)| member.chunk);
    if chunk == 0 {
        return Err(subject.damaged("superblock", "a raid0 without chunks"));
    }
    let mut sizes = legs.iter().map(|(member, _)| member.size / chunk * chunk);
    let size = sizes.next().unwrap_or(0);
    if sizes.any(|other| other != size) {
        let what = "a raid0 of members of different sizes";
        return Err(subject.unsupported(what, "it has several zones"));
    }
    if size.checked_mul(legs.len() as u64).is_none_or(|whole| whole == 0) {
        return Err(subject.damaged("superblock", format!("members of {size} bytes")));
    }
    let facts = legs[0].0.clone();
    let areas = legs.into_iter().map(|(member, device)| (device, member.data)).collect();
    Ok(Arc::new(Stripe { facts, striped: Striped { chunk, areas, size } }))
}

/// A raid0.
struct Stripe {
    facts: Member,
    striped: Striped,
}

impl Image for Stripe {
    fn format(&self) -> &'static str {
        "md raid0"
    }

    fn size(&self) -> u64 {
        self.striped.size * self.striped.areas.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.striped.read(offset, buf)
    }

    fn is_writable(&self) -> bool {
        self.striped.areas.iter().all(|(device, _)| device.is_writable())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.striped.write(offset, bytes)
    }

    fn flush(&self) -> Result<(), Error> {
        self.striped.areas.iter().try_for_each(|(device, _)| target::flush(&**device))
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        Ok(self.facts.facts())
    }

    fn threads(&self) -> usize {
        0
    }
}

fn mirror(subject: &Subject, members: Vec<Leg>) -> Result<Arc<dyn Image>, Error> {
    let order = in_order(subject, members)?;
    let gone = missing(&order);
    let mut legs: Vec<Leg> = order.into_iter().flatten().collect();
    let Some(newest) = legs.iter().map(|(member, _)| member.events).max() else {
        let what = "only spares and failed members of a raid1";
        return Err(subject.unsupported(what, "give a member that is in step"));
    };
    // A member that missed events holds older content.
    let stale: Vec<String> = legs
        .iter()
        .filter(|(member, _)| member.events + 1 < newest)
        .map(|(_, device)| device.name().to_owned())
        .collect();
    legs.retain(|(member, _)| member.events + 1 >= newest);
    let first = legs[0].0.clone();
    let size = first.mirrored;
    if let Some((member, device)) = legs.iter().find(|(member, _)| member.size < size) {
        let what = format!("{} has {} bytes of data, of {size}", device.name(), member.size);
        return Err(subject.damaged("superblock", what));
    }
    Ok(Arc::new(Mirror { first, size, legs, gone, stale }))
}

/// A raid1. It is read from its first member, and not written: who writes has to note in every
/// superblock that the members may differ, and to bring them back in step after a power cut.
struct Mirror {
    first: Member,
    size: u64,
    legs: Vec<Leg>,
    gone: Vec<String>,
    stale: Vec<String>,
}

impl Image for Mirror {
    fn format(&self) -> &'static str {
        "md raid1"
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut failed = None;
        for (member, device) in &self.legs {
            match source::read(&**device, member.data + offset, buf) {
                Ok(()) => return Ok(()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        let mut facts = self.first.facts();
        facts.push(("missing", Fact::Lines(self.gone.clone())));
        facts.push(("stale", Fact::Lines(self.stale.clone())));
        Ok(facts)
    }

    fn threads(&self) -> usize {
        0
    }
}
