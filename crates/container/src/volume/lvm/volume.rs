//! A logical volume as an image: its segments laid on the physical volumes.

use std::sync::Arc;

use super::group::{Area, Group, Lv, Segment};
use crate::error::Subject;
use crate::target::{self, Target};
use crate::volume::Striped;
use crate::{Error, Fact, Image};

/// Volumes inside of each other: mirrors of stripes of mirrors are no more.
const DEPTH_MAX: usize = 4;

/// A device behind the identifier of its physical volume.
type Device = (String, Arc<dyn Target>);

/// Opens a volume of a group by its name.
///
/// # Errors
/// As [`super::open`].
pub(super) fn open(
    subject: &Subject,
    group: &Group,
    devices: Vec<Device>,
    name: &str,
) -> Result<Arc<dyn Image>, Error> {
    let Some(volume) = group.volume(name) else {
        let names: Vec<&str> = group.visible().map(|volume| volume.name.as_str()).collect();
        let what = format!("the group `{}` has no volume `{name}`", group.name);
        return Err(subject.unsupported(what, format!("it has: {}", names.join(", "))));
    };
    let layout = Layout { subject, group, devices: &devices };
    let parts = layout.parts(volume, 0)?;
    let mirrored = parts.iter().any(|part| matches!(part.kind, Kind::Mirror(_)));
    let mut facts = vec![
        ("group", Fact::from(group.name.as_str())),
        ("volume", name.into()),
        ("layout", volume.describe(group.extent * 512).into()),
    ];
    let missing = group.physical.iter().filter(|pv| !devices.iter().any(|(id, _)| *id == pv.id));
    facts.push(("missing", Fact::Lines(missing.map(|pv| pv.name.clone()).collect())));
    Ok(Arc::new(Logical { parts, writable: volume.writable && !mirrored, facts }))
}

/// A part of a volume, in bytes.
struct Part {
    start: u64,
    len: u64,
    kind: Kind,
}

enum Kind {
    Striped(Striped),
    /// Copies of the part, of which each is enough.
    Mirror(Vec<Vec<Part>>),
}

struct Layout<'a> {
    subject: &'a Subject,
    group: &'a Group,
    devices: &'a [Device],
}

impl Layout<'_> {
    fn parts(&self, volume: &Lv, depth: usize) -> Result<Vec<Part>, Error> {
        if depth > DEPTH_MAX {
            return Err(self.subject.damaged("text", "volumes that lie inside of each other"));
        }
        let extent = self.group.extent * 512;
        let part = |segment: &Segment| -> Result<Part, Error> {
            let len = (segment.extents.end - segment.extents.start) * extent;
            let kind = match segment.kind.as_str() {
                "striped" => Kind::Striped(self.striped(volume, segment, len)?),
                "raid1" | "mirror" => Kind::Mirror(self.legs(volume, segment, depth)?),
                kind => {
                    let what = format!("the volume `{}` is of the kind `{kind}`", volume.name);
                    let hint = "linear, striped and mirrored ones are read";
                    return Err(self.subject.unsupported(what, hint));
                }
            };
            Ok(Part { start: segment.extents.start * extent, len, kind })
        };
        volume.segments.iter().map(part).collect()
    }

    fn striped(&self, volume: &Lv, segment: &Segment, len: u64) -> Result<Striped, Error> {
        let damaged = |what: String| self.subject.damaged(format!("text, {}", volume.name), what);
        let width = segment.areas.len() as u64;
        let chunk = if width == 1 { len } else { segment.stripe.saturating_mul(512) };
        let whole = |bytes: u64, of: u64| of > 0 && bytes.is_multiple_of(of);
        if !whole(len, width) || !whole(len / width, chunk) {
            return Err(damaged(format!("{len} bytes in {width} stripes of {chunk}")));
        }
        let size = len / width;
        let areas = segment.areas.iter().map(|area| self.area(volume, area, size));
        Ok(Striped { chunk, areas: areas.collect::<Result<_, _>>()?, size })
    }

    /// The device of an area, and its first byte there.
    fn area(&self, volume: &Lv, area: &Area, len: u64) -> Result<(Arc<dyn Target>, u64), Error> {
        let damaged = |what: String| self.subject.damaged(format!("text, {}", volume.name), what);
        let number = self.group.pv(&area.name);
        let number =
            number.ok_or_else(|| damaged(format!("no physical volume `{}`", area.name)))?;
        let (pv, extent) = (&self.group.physical[number], self.group.extent);
        let end = area.extent.checked_add((len / 512).div_ceil(extent));
        if end.is_none_or(|end| end > pv.extents) {
            return Err(damaged(format!(
                "extent {} of {} of {}",
                area.extent, pv.extents, pv.name
            )));
        }
        let device = self.devices.iter().find(|(id, _)| *id == pv.id);
        let Some((_, device)) = device else {
            let what = format!("the physical volume {} ({}) is missing", pv.name, pv.id);
            let hint = format!("give all of them: a.img,b.img@{}/{}", self.group.name, volume.name);
            return Err(self.subject.unsupported(what, hint));
        };
        let offset = (pv.start + area.extent * extent) * 512;
        if offset.checked_add(len).is_none_or(|end| end > device.size()) {
            let what = format!("{len} bytes from byte {offset} of {}", device.name());
            return Err(damaged(what));
        }
        Ok((device.clone(), offset))
    }

    /// The copies of a mirror whose physical volumes are there: one at least.
    fn legs(&self, volume: &Lv, segment: &Segment, depth: usize) -> Result<Vec<Vec<Part>>, Error> {
        let (mut legs, mut wrong) = (Vec::new(), None);
        let len = segment.extents.end - segment.extents.start;
        for area in &segment.areas {
            let leg = self.group.volume(&area.name).filter(|leg| leg.extents() >= len);
            let leg = leg.ok_or_else(|| {
                let what = format!("no volume `{}` of {len} extents", area.name);
                self.subject.damaged(format!("text, {}", volume.name), what)
            })?;
            match self.parts(leg, depth + 1) {
                Ok(parts) => legs.push(parts),
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        if legs.is_empty() {
            let none = || self.subject.damaged(format!("text, {}", volume.name), "no mirrors");
            return Err(wrong.unwrap_or_else(none));
        }
        Ok(legs)
    }
}

/// An opened volume. Mirrors are read: who writes one has to note in its log that the copies may
/// differ.
struct Logical {
    parts: Vec<Part>,
    writable: bool,
    facts: Vec<(&'static str, Fact)>,
}

/// Runs `work` on each piece of a range: the part that it lies in, the first byte there, and the
/// place of the piece in the range.
fn each(
    parts: &[Part],
    offset: u64,
    len: usize,
    mut work: impl FnMut(&Part, u64, std::ops::Range<usize>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let index = parts.partition_point(|part| part.start + part.len <= at);
        let Some(part) = parts.get(index) else { break };
        let within = at - part.start;
        let piece = (part.len - within).min((len - done) as u64) as usize;
        work(part, within, done..done + piece)?;
        done += piece;
    }
    Ok(())
}

fn read(parts: &[Part], offset: u64, buf: &mut [u8]) -> Result<(), Error> {
    each(parts, offset, buf.len(), |part, at, piece| match &part.kind {
        Kind::Striped(striped) => striped.read(at, &mut buf[piece]),
        Kind::Mirror(legs) => {
            let mut failed = None;
            for leg in legs {
                match read(leg, at, &mut buf[piece.clone()]) {
                    Ok(()) => return Ok(()),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            failed.map_or(Ok(()), Err)
        }
    })
}

/// Runs `work` on every device below.
fn devices(
    parts: &[Part],
    work: &mut impl FnMut(&dyn Target) -> Result<(), Error>,
) -> Result<(), Error> {
    for part in parts {
        match &part.kind {
            Kind::Striped(striped) => {
                striped.areas.iter().try_for_each(|(device, _)| work(&**device))?
            }
            Kind::Mirror(legs) => legs.iter().try_for_each(|leg| devices(leg, work))?,
        }
    }
    Ok(())
}

impl Image for Logical {
    fn format(&self) -> &'static str {
        "LVM2"
    }

    fn size(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.start + part.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        read(&self.parts, offset, buf)
    }

    fn is_writable(&self) -> bool {
        let mut writable = self.writable;
        let _infallible = devices(&self.parts, &mut |device| {
            writable &= device.is_writable();
            Ok(())
        });
        writable
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        each(&self.parts, offset, bytes.len(), |part, at, piece| match &part.kind {
            Kind::Striped(striped) => striped.write(at, &bytes[piece]),
            Kind::Mirror(_) => Err(crate::image::only_read("LVM2 mirror")),
        })
    }

    fn flush(&self) -> Result<(), Error> {
        devices(&self.parts, &mut |device| target::flush(device))
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        Ok(self.facts.clone())
    }

    fn threads(&self) -> usize {
        0
    }
}
