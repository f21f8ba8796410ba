//! Recognises the format of a container by its content.

use crate::kind::Format;
use crate::source::{self, Source};
use crate::{Error, foreign, seekable};

/// The magic numbers at the start.
const MAGICS: &[(usize, &[u8], Format)] = &[
    (0, b"QFI\xfb", Format::Qcow2),
    (0, b"KDMV", Format::Vmdk),
    (0, b"COWD", Format::Vmdk),
    (0, b"# Disk DescriptorFile", Format::Vmdk),
    (0, b"vhdxfile", Format::Vhdx),
    (0, b"conectix", Format::Vhd),
    (64, &[0x7f, 0x10, 0xda, 0xbe], Format::Vdi),
    (0, &[0x3a, 0xff, 0x26, 0xed], Format::AndroidSparse),
];

/// The container that these bytes are, by magic numbers at their start and end; none: a raw image.
///
/// The content of a raw image can look like a container, by the will of whoever writes to that
/// disk; where this matters, say the format.
///
/// # Errors
/// The source failed.
pub fn recognise(source: &dyn Source) -> Result<Option<Format>, Error> {
    let start = source::read_some(source, 0, 512)?;
    for (offset, magic, format) in MAGICS {
        if start.get(*offset..offset + magic.len()) == Some(*magic) {
            return Ok(Some(*format));
        }
    }
    let end = source.size();
    if seekable::starts(&start) {
        let tail = source::read_some(source, end.saturating_sub(4), 4)?;
        return Ok(seekable::ends(&tail).then_some(Format::SeekableZstd));
    }
    // A fixed VHD is the disk with 512 bytes behind it.
    if end > 512 {
        let tail = source::read_some(source, end - 512, 512)?;
        if foreign::is_fixed_footer(&tail) {
            return Ok(Some(Format::Vhd));
        }
    }
    Ok(None)
}
