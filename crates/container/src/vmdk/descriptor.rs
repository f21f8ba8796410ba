//! The text that describes a VMDK.

use crate::Error;
use crate::bytes::text;
use crate::error::{CONVERT, Subject};

/// Most extents of a disk.
const EXTENTS_MAX: usize = 4096;
/// Most sectors of an extent: 2^52 bytes.
const SECTORS_MAX: u64 = 1 << 43;

/// What an extent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Sparse,
    Flat,
    Zero,
}

/// A part of the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub sectors: u64,
    pub kind: Kind,
    pub file: String,
    /// First sector in the file.
    pub offset: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Descriptor {
    /// `createType`.
    pub kind: String,
    pub extents: Vec<Extent>,
    parent: Option<String>,
}

impl Descriptor {
    pub fn parse(bytes: &[u8], subject: &Subject) -> Result<Descriptor, Error> {
        let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut kind = "unknown".to_owned();
        let (mut extents, mut parent) = (Vec::new(), None);
        for (number, line) in String::from_utf8_lossy(bytes).lines().enumerate() {
            let line = line.trim();
            if let Some((key, value)) = line.split_once('=') {
                let value = value.trim().trim_matches('"');
                match key.trim() {
                    "createType" => kind = value.to_owned(),
                    "parentCID" if !value.eq_ignore_ascii_case("ffffffff") => {
                        parent = Some(value.to_owned());
                    }
                    _ => {}
                }
            }
            if ["RW ", "RDONLY ", "NOACCESS "].iter().any(|access| line.starts_with(access)) {
                let place = || format!("descriptor, line {}", number + 1);
                if extents.len() == EXTENTS_MAX {
                    return Err(
                        subject.damaged(place(), format!("more than {EXTENTS_MAX} extents"))
                    );
                }
                extents.push(extent(line, subject, &place())?);
            }
        }
        Ok(Descriptor { kind, extents, parent })
    }

    /// Refuses what holds only the changes to another image.
    pub fn refuse_parent(&self, subject: &Subject) -> Result<(), Error> {
        match &self.parent {
            None => Ok(()),
            Some(parent) => {
                let parent = text(parent.as_bytes());
                let what = format!("it holds the changes to a parent (CID {parent})");
                Err(subject.unsupported(what, CONVERT))
            }
        }
    }
}

/// A line such as `RW 4192256 SPARSE "disk-s001.vmdk"` or `RW 2048 FLAT "disk-flat.vmdk" 0`.
fn extent(line: &str, subject: &Subject, place: &str) -> Result<Extent, Error> {
    let bad = |what: &str| subject.damaged(place, format!("{what}: `{}`", text(line.as_bytes())));
    let mut words = line.splitn(4, ' ');
    let access = words.next().unwrap_or_default();
    let sectors = words.next().and_then(|word| word.parse().ok());
    let sectors = sectors.filter(|&count| count <= SECTORS_MAX).ok_or_else(|| bad("no size"))?;
    let kind = match words.next() {
        _ if access == "NOACCESS" => Kind::Zero,
        Some("SPARSE") => Kind::Sparse,
        Some("FLAT" | "VMFS") => Kind::Flat,
        Some("ZERO") => Kind::Zero,
        Some(other) => {
            let what = format!("an extent of the kind {}", text(other.as_bytes()));
            return Err(subject.unsupported(what, CONVERT));
        }
        None => return Err(bad("no kind")),
    };
    let rest = words.next().unwrap_or_default();
    let (file, behind) = match rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some((file, behind)) if !file.is_empty() => (file.to_owned(), behind.trim()),
        _ if kind == Kind::Zero => (String::new(), ""),
        _ => return Err(bad("no name")),
    };
    let offset = match behind.split(' ').next() {
        Some("") | None => 0,
        Some(word) => {
            word.parse().ok().filter(|&at| at <= SECTORS_MAX).ok_or_else(|| bad("no offset"))?
        }
    };
    Ok(Extent { sectors, kind, file, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_have_names_with_spaces_and_offsets() {
        let subject = Subject { name: "a.vmdk".to_owned(), format: "VMDK" };
        let text = b"# Disk DescriptorFile\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
            RW 8 FLAT \"my disk.vmdk\" 16\nRW 4 ZERO\nRW 2 SPARSE \"b.vmdk\"\n\0\0garbage";
        let found = Descriptor::parse(text, &subject).unwrap();
        let extent = |sectors, kind, file: &str, offset| Extent {
            sectors,
            kind,
            file: file.to_owned(),
            offset,
        };
        assert_eq!(found.kind, "monolithicFlat");
        assert_eq!(
            found.extents,
            [
                extent(8, Kind::Flat, "my disk.vmdk", 16),
                extent(4, Kind::Zero, "", 0),
                extent(2, Kind::Sparse, "b.vmdk", 0),
            ]
        );
        for wrong in
            ["RW x FLAT \"a\"", "RW 1 FLAT", "RW 1", "RW 1 ODD \"a\"", "RW 1 FLAT \"a\" -1"]
        {
            assert!(Descriptor::parse(wrong.as_bytes(), &subject).is_err(), "{wrong}");
        }
        let delta = Descriptor::parse(b"parentCID=12345678\n", &subject).unwrap();
        assert!(delta.refuse_parent(&subject).unwrap_err().to_string().contains("12345678"));
    }
}
