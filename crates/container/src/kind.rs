//! The formats and their names.

use std::fmt;
use std::str::FromStr;

/// A format of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The disk itself.
    Raw,
    /// QEMU's, versions 2 and 3.
    Qcow2,
    /// VMware's, and the text that names its parts.
    Vmdk,
    /// Microsoft's of Virtual PC, fixed and dynamic.
    Vhd,
    /// Microsoft's of Hyper-V.
    Vhdx,
    /// VirtualBox's.
    Vdi,
    /// The sparse images that fastboot takes.
    AndroidSparse,
    /// Frames of zstd with a table at the end.
    SeekableZstd,
}

/// Every format.
const ALL: [Format; 8] = [
    Format::Raw,
    Format::Qcow2,
    Format::Vmdk,
    Format::Vhd,
    Format::Vhdx,
    Format::Vdi,
    Format::AndroidSparse,
    Format::SeekableZstd,
];

impl Format {
    /// Its name, as `--image-format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
            Format::Vhd => "vhd",
            Format::Vhdx => "vhdx",
            Format::Vdi => "vdi",
            Format::AndroidSparse => "android-sparse",
            Format::SeekableZstd => "zstd",
        }
    }

    /// What `qemu-img convert -f` calls it; none where it does not know it.
    pub fn qemu_name(self) -> Option<&'static str> {
        match self {
            Format::Vhd => Some("vpc"),
            Format::AndroidSparse | Format::SeekableZstd => None,
            other => Some(other.name()),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// # Errors
    /// A sentence with the names that are known; those of `qemu-img` are, too.
    fn from_str(text: &str) -> Result<Format, String> {
        let found = ALL.into_iter().find(|f| f.name() == text || f.qemu_name() == Some(text));
        found.ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|format| format.name()).collect();
            format!("unknown image format `{text}`; known: {}", names.join(", "))
        })
    }
}
