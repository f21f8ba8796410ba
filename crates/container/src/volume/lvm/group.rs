//! A volume group as its text describes it.

use std::ops::Range;

use super::config::{self, Section, Value};
use crate::Error;
use crate::error::Subject;

/// A volume group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub name: String,
    pub sequence: u64,
    /// Sectors of an extent.
    pub extent: u64,
    pub physical: Vec<Pv>,
    pub volumes: Vec<Lv>,
}

/// A physical volume of a group.
#[derive(Clone, Debug)]
pub(super) struct Pv {
    pub name: String,
    /// Without the dashes, as the label has it.
    pub id: String,
    /// Sectors before its first extent.
    pub start: u64,
    pub extents: u64,
}

/// A logical volume.
#[derive(Clone, Debug)]
pub(super) struct Lv {
    pub name: String,
    pub visible: bool,
    pub writable: bool,
    pub segments: Vec<Segment>,
}

/// A part of a logical volume.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// In extents of the volume.
    pub extents: Range<u64>,
    pub kind: String,
    /// Sectors of a stripe.
    pub stripe: u64,
    /// Physical or logical volumes, each with its first extent.
    pub areas: Vec<Area>,
}

/// A place that a segment lies in.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub name: String,
    pub extent: u64,
}

impl Group {
    /// The volumes that people see.
    pub fn visible(&self) -> impl Iterator<Item = &Lv> {
        self.volumes.iter().filter(|volume| volume.visible)
    }

    pub fn volume(&self, name: &str) -> Option<&Lv> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    pub fn pv(&self, name: &str) -> Option<usize> {
        self.physical.iter().position(|pv| pv.name == name)
    }
}

impl Lv {
    /// Extents of the whole volume.
    pub fn extents(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.extents.end)
    }

    /// Its name, kind and size in a line.
    pub fn describe(&self, extent_bytes: u64) -> String {
        let mut kinds: Vec<&str> = self.segments.iter().map(Segment::kind_name).collect();
        kinds.dedup();
        let bytes = self.extents().saturating_mul(extent_bytes);
        format!("{} ({}, {bytes} bytes)", self.name, kinds.join(" and "))
    }
}

impl Segment {
    /// What people call the kind.
    pub fn kind_name(&self) -> &str {
        match (self.kind.as_str(), self.areas.len()) {
            ("striped", 1) => "linear",
            (kind, _) => kind,
        }
    }
}

/// Looks fields up, with errors that name them.
struct Fields<'a> {
    subject: &'a Subject,
    path: String,
    section: &'a Section,
}

impl<'a> Fields<'a> {
    fn wrong(&self, key: &str) -> Error {
        let shown = match self.section.get(key) {
            None => "is not there".to_owned(),
            Some(value) => format!("is {value:?}").chars().take(80).collect(),
        };
        self.subject.damaged(format!("text, {}", self.path), format!("`{key}` {shown}"))
    }

    fn number(&self, key: &str) -> Result<u64, Error> {
        match self.section.get(key) {
            Some(Value::Number(number)) => (*number).try_into().map_err(|_| self.wrong(key)),
            _ => Err(self.wrong(key)),
        }
    }

    fn text(&self, key: &str) -> Result<&'a str, Error> {
        match self.section.get(key) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(self.wrong(key)),
        }
    }

    fn list(&self, key: &str) -> Result<&'a [Value], Error> {
        match self.section.get(key) {
            Some(Value::List(list)) => Ok(list),
            _ => Err(self.wrong(key)),
        }
    }

    fn has_word(&self, key: &str, word: &str) -> Result<bool, Error> {
        Ok(self.list(key)?.contains(&Value::Text(word.to_owned())))
    }

    /// The sections inside of this one.
    fn sections(&self) -> impl Iterator<Item = (&'a str, Fields<'a>)> {
        let (subject, path) = (self.subject, self.path.clone());
        self.section.iter().filter_map(move |(name, value)| match value {
            Value::Section(section) => {
                let path = format!("{path}/{name}");
                Some((name.as_str(), Fields { subject, path, section }))
            }
            _ => None,
        })
    }

    /// The sections of a section that may not be there.
    fn below(&self, key: &str) -> Vec<(&'a str, Fields<'a>)> {
        let found = self.sections().find(|(name, _)| *name == key);
        found.map_or_else(Vec::new, |(_, fields)| fields.sections().collect())
    }
}

/// Reads the text of a group.
///
/// # Errors
/// It is no text of a group, or contradicts itself.
pub(super) fn parse(subject: &Subject, text: &[u8]) -> Result<Group, Error> {
    let all = config::parse(text).map_err(|what| subject.damaged("text", what))?;
    let root = Fields { subject, path: String::new(), section: &all };
    let Some((name, group)) = root.sections().next() else {
        return Err(subject.damaged("text", "it describes no volume group"));
    };
    let extent = group.number("extent_size")?;
    if extent == 0 || extent > 1 << 32 {
        return Err(group.wrong("extent_size"));
    }
    let mut physical = Vec::new();
    for (name, pv) in group.below("physical_volumes") {
        let extents = pv.number("pe_count")?;
        let (start, id) = (pv.number("pe_start")?, pv.text("id")?.replace('-', ""));
        let bytes =
            extents.checked_mul(extent).and_then(|s| s.checked_add(start)?.checked_mul(512));
        if bytes.is_none() {
            return Err(pv.wrong("pe_count"));
        }
        physical.push(Pv { name: name.to_owned(), id, start, extents });
    }
    let mut volumes = Vec::new();
    for (name, lv) in group.below("logical_volumes") {
        volumes.push(volume(name, &lv, extent)?);
    }
    let (name, sequence) = (name.to_owned(), group.number("seqno")?);
    Ok(Group { name, sequence, extent, physical, volumes })
}

fn volume(name: &str, lv: &Fields<'_>, extent: u64) -> Result<Lv, Error> {
    let mut segments = Vec::new();
    for (_, fields) in lv.sections().filter(|(key, _)| key.starts_with("segment")) {
        let (start, count) = (fields.number("start_extent")?, fields.number("extent_count")?);
        let end = start.checked_add(count).filter(|end| {
            count > 0 && end.checked_mul(extent).is_some_and(|s| s.checked_mul(512).is_some())
        });
        let end = end.ok_or_else(|| fields.wrong("extent_count"))?;
        let kind = fields.text("type")?.to_owned();
        let list = ["stripes", "mirrors", "raids", "raid0_lvs"]
            .into_iter()
            .find(|list| fields.section.contains_key(*list));
        let areas = match list {
            Some("raids") => raids(&fields)?,
            Some("raid0_lvs") => names(&fields, "raid0_lvs")?,
            Some(list) => pairs(&fields, list)?,
            None => Vec::new(),
        };
        let stripe = match fields.section.contains_key("stripe_size") {
            true => fields.number("stripe_size")?,
            false => 0,
        };
        segments.push(Segment { extents: start..end, kind, stripe, areas });
    }
    segments.sort_by_key(|segment| segment.extents.start);
    let mut at = 0;
    for segment in &segments {
        if segment.extents.start != at {
            let what = format!("a segment from extent {} where {at} is due", segment.extents.start);
            return Err(lv.subject.damaged(format!("text, {}", lv.path), what));
        }
        at = segment.extents.end;
    }
    Ok(Lv {
        name: name.to_owned(),
        visible: lv.has_word("status", "VISIBLE")?,
        writable: lv.has_word("status", "WRITE")?,
        segments,
    })
}

/// A list of names, each with the extent behind it.
fn pairs(fields: &Fields<'_>, key: &str) -> Result<Vec<Area>, Error> {
    let list = fields.list(key)?;
    let pairs = list.chunks(2).map(|pair| match pair {
        [Value::Text(name), Value::Number(extent)] => {
            let extent = u64::try_from(*extent).ok()?;
            Some(Area { name: name.clone(), extent })
        }
        _ => None,
    });
    pairs.collect::<Option<Vec<_>>>().ok_or_else(|| fields.wrong(key))
}

/// A list of names of volumes, used from their starts.
fn names(fields: &Fields<'_>, key: &str) -> Result<Vec<Area>, Error> {
    let names = fields.list(key)?.iter().map(|value| match value {
        Value::Text(name) => Some(Area { name: name.clone(), extent: 0 }),
        _ => None,
    });
    names.collect::<Option<Vec<_>>>().ok_or_else(|| fields.wrong(key))
}

/// Pairs of volumes, of which the second ones hold the data.
fn raids(fields: &Fields<'_>) -> Result<Vec<Area>, Error> {
    let all = names(fields, "raids")?;
    if all.len() % 2 != 0 {
        return Err(fields.wrong("raids"));
    }
    Ok(all.into_iter().skip(1).step_by(2).collect())
}
