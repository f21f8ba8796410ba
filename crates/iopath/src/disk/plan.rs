//! The plan of a disk: a file in TOML.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::build::recipe::Kind;

/// A plan. Names of files are relative to its folder.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Which table.
    #[serde(default)]
    pub table: Table,
    /// Bytes of the disk; without, what the partitions need.
    pub size: Option<Size>,
    /// GUID of the disk; the first four bytes are the signature of an MBR.
    pub uuid: Option<Id>,
    /// Partitions begin at multiples of this.
    #[serde(default = "one_mib")]
    pub align: Size,
    /// What lies outside of partitions.
    #[serde(default, rename = "file")]
    pub files: Vec<Outside>,
    /// The partitions.
    #[serde(default, rename = "partition")]
    pub partitions: Vec<Partition>,
    /// Its text.
    #[serde(skip)]
    pub text: Vec<u8>,
    /// Where it lies.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A partition table.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// GUID partition table.
    #[default]
    Gpt,
    /// Master boot record.
    Mbr,
    /// None: files alone.
    None,
}

/// A file at an offset.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Outside {
    /// The file.
    pub path: PathBuf,
    /// Where.
    pub offset: Size,
}

/// A partition.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Partition {
    /// Its name in a GPT.
    #[serde(default)]
    pub name: String,
    /// Its type: a name, a GUID, or two hexadecimal digits.
    #[serde(rename = "type", default = "generic")]
    pub kind: String,
    /// Bytes; without, what it holds needs. `rest` is what is left of the disk.
    pub size: Option<PartSize>,
    /// Where it begins; without, behind the one before.
    pub offset: Option<Size>,
    /// Its GUID.
    pub uuid: Option<Id>,
    /// What is made in it: `ext2`, `ext3`, `ext4`, `xfs`, `vfat`, `swap`.
    pub format: Option<String>,
    /// What that is filled with.
    pub source: Option<PathBuf>,
    /// A file whose bytes it gets.
    pub image: Option<PathBuf>,
    /// Name of the file system.
    #[serde(default)]
    pub label: String,
    /// UUID of the file system.
    pub fs_uuid: Option<Id>,
    /// Features of ext2, ext3 and ext4, as `mkfs -O` takes them.
    #[serde(default)]
    pub features: String,
    /// Percent that stay free, without a size.
    #[serde(default = "ten_percent", deserialize_with = "percent")]
    pub free: f64,
    /// As `mkfs --owner`.
    pub owner: Option<String>,
    /// As `mkfs --owner-map`.
    #[serde(default)]
    pub owner_map: Vec<PathBuf>,
    /// As `mkfs --exclude`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// An MBR's active partition; in a GPT the bit for legacy BIOS.
    #[serde(default)]
    pub bootable: bool,
    /// Mounted read-only, not mounted, grown at boot: bits of Discoverable Partitions.
    #[serde(default)]
    pub read_only: bool,
    /// See `read_only`.
    #[serde(default)]
    pub no_auto: bool,
    /// See `read_only`.
    #[serde(default)]
    pub grow_file_system: bool,
}

/// What a partition holds.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a disk has few partitions")]
pub enum Holds<'p> {
    /// Zeros.
    Nothing,
    /// The bytes of a file.
    Image(&'p Path),
    /// Swap space.
    Swap,
    /// A FAT file system.
    Fat,
    /// ext2, ext3, ext4 or XFS.
    Tree(Kind),
}

/// A size of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartSize {
    /// Bytes.
    Bytes(u64),
    /// What is left.
    Rest,
}

/// Bytes, as a number or with a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

/// A UUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id(pub [u8; 16]);

fn one_mib() -> Size {
    Size(1 << 20)
}

fn generic() -> String {
    "linux-generic".to_owned()
}

fn ten_percent() -> f64 {
    10.0
}

/// A number or text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        match Word::deserialize(from)? {
            Word::Number(bytes) => Ok(Size(bytes)),
            Word::Text(text) => crate::text::parse_size(&text).map(Size).map_err(D::Error::custom),
        }
    }
}

impl<'de> Deserialize<'de> for PartSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PartSize, D::Error> {
        match Word::deserialize(from)? {
            Word::Number(bytes) => Ok(PartSize::Bytes(bytes)),
            Word::Text(text) if text == "rest" => Ok(PartSize::Rest),
            Word::Text(text) => {
                crate::text::parse_size(&text).map(PartSize::Bytes).map_err(D::Error::custom)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Id, D::Error> {
        let text = String::deserialize(from)?;
        let uuid = text.parse::<uuid::Uuid>().map_err(D::Error::custom)?;
        Ok(Id(*uuid.as_bytes()))
    }
}

fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let text = match Word::deserialize(from)? {
        Word::Number(number) => number.to_string(),
        Word::Text(text) => text,
    };
    crate::build::percent(&text).map_err(D::Error::custom)
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// The line that is wrong.
    pub fn read(path: &Path) -> Result<Plan> {
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(shown)?;
        let mut plan: Plan = toml::from_str(&text).with_context(shown)?;
        plan.text = text.into_bytes();
        plan.folder = path.parent().map(Path::to_owned).unwrap_or_default();
        if !plan.align.0.is_power_of_two() || plan.align.0 < 512 {
            bail!("{}: align: {} is not a power of two from 512", shown(), plan.align.0);
        }
        Ok(plan)
    }

    /// Opens a file that the plan names.
    ///
    /// # Errors
    /// The host refuses.
    pub fn file(&self, path: &Path) -> Result<File> {
        let path = self.folder.join(path);
        File::open(&path).with_context(|| path.display().to_string())
    }

    /// How messages call a partition.
    pub fn shown(&self, index: usize) -> String {
        match self.partitions[index].name.as_str() {
            "" => format!("partition {}", index + 1),
            name => format!("partition {} ({name})", index + 1),
        }
    }
}

impl Partition {
    /// What it holds.
    ///
    /// # Errors
    /// There is no such format, or its options are impossible.
    pub fn holds(&self) -> Result<Holds<'_>> {
        let Some(format) = &self.format else {
            return match (&self.image, &self.source) {
                (Some(image), None) => Ok(Holds::Image(image)),
                (None, None) => Ok(Holds::Nothing),
                _ => bail!("a source needs a format"),
            };
        };
        if self.image.is_some() {
            bail!("has both an image and a format");
        }
        let label = self.label.clone();
        Ok(match format.as_str() {
            "vfat" | "fat" => Holds::Fat,
            "swap" if self.source.is_none() => Holds::Swap,
            "xfs" => Holds::Tree(Kind::Xfs(xfs::MkfsOptions { label, ..Default::default() })),
            other => {
                let known = "ext2, ext3, ext4, xfs, vfat, swap";
                let fstype = other.parse().map_err(|_| ());
                let fstype = fstype.ok().with_context(|| format!("format `{other}`: not {known}"));
                let features = self.features.clone();
                let options =
                    ext4::MkfsOptions { fstype: fstype?, label, features, ..Default::default() };
                Holds::Tree(Kind::Ext(options))
            }
        })
    }
}
