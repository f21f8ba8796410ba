//! Writing a raw disk as a container: qcow2, fixed VHD, Android sparse, seekable zstd.
//!
//! Equal disks make equal containers; where one wants an identity of its own, it is made from a
//! number that the caller gives. What is zeros takes no space, but in a fixed VHD, where it is a
//! hole.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use crate::kind::Format;

mod android;
mod qcow2;
mod seekable;
mod vhd;

pub use qcow2::Shape as Qcow2Shape;

/// Bytes of a disk that are looked at in one piece.
const LOOK: u64 = 64 << 10;

/// A raw disk: a file, which may have holes.
pub struct Disk<'f> {
    file: &'f File,
    bytes: u64,
}

impl Disk<'_> {
    /// The disk that a file of the host holds.
    ///
    /// # Errors
    /// The host does not say its size.
    pub fn new(file: &File) -> io::Result<Disk<'_>> {
        let bytes = file.metadata()?.len();
        Ok(Disk { file, bytes })
    }

    /// The first byte at `offset` or behind it that may be another one than zero.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(found) if found < self.bytes => Ok(Some(found)),
            Ok(_) | Err(rustix::io::Errno::NXIO) => Ok(None),
            // A file system that does not know holes.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOTSUP) => Ok(Some(offset)),
            Err(error) => Err(error.into()),
        }
    }

    /// Calls `work` with each block of `unit` bytes that is not all zeros, and with its number. The
    /// last one may be shorter.
    fn each(
        &self,
        unit: u64,
        mut work: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut block = vec![0; unit as usize];
        let mut number = 0;
        while number * unit < self.bytes {
            let Some(data) = self.next_data(number * unit)? else { return Ok(()) };
            number = number.max(data / unit);
            let len = unit.min(self.bytes - number * unit) as usize;
            self.file.read_exact_at(&mut block[..len], number * unit)?;
            if !base::page::is_zero(&block[..len]) {
                work(number, &block[..len])?;
            }
            number += 1;
        }
        Ok(())
    }
}

/// Writes `disk` to `out`, an empty file, in a format.
///
/// # Errors
/// The host refuses; the format is not written, or does not take a disk of this size.
pub fn write(disk: &Disk, format: Format, identity: [u8; 16], out: &mut File) -> io::Result<()> {
    match format {
        Format::Raw => {
            out.set_len(disk.bytes)?;
            disk.each(LOOK, |number, block| out.write_all_at(block, number * LOOK))
        }
        Format::Qcow2 => qcow2::write(disk, Qcow2Shape::default(), out),
        Format::Vhd => vhd::write(disk, identity, out),
        Format::AndroidSparse => android::write(disk, out),
        Format::SeekableZstd => seekable::write(disk, out),
        Format::Vmdk | Format::Vhdx | Format::Vdi => Err(refused(&format!(
            "{format} is not written; convert a raw image with `qemu-img convert -O {format}`"
        ))),
    }
}

/// Writes a qcow2 image to `out`, an empty file: a disk of `bytes` bytes without content of its
/// own, over the raw disk that `backing` names.
///
/// # Errors
/// The name is longer than 1023 bytes; the host refuses.
pub fn overlay(bytes: u64, backing: &str, out: &mut File) -> io::Result<()> {
    qcow2::overlay(bytes, backing, out)
}

/// Writes `disk` to `out`, an empty file, as a qcow2 image of this form.
///
/// # Errors
/// The host refuses.
pub fn write_qcow2(disk: &Disk, shape: Qcow2Shape, out: &mut File) -> io::Result<()> {
    qcow2::write(disk, shape, out)
}

/// Formats by the endings of names.
pub fn format_of_name(path: &std::path::Path) -> Format {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("qcow2") => Format::Qcow2,
        Some("vhd") => Format::Vhd,
        Some("simg") => Format::AndroidSparse,
        Some("zst") => Format::SeekableZstd,
        _ => Format::Raw,
    }
}

fn refused(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, words.to_owned())
}

/// Goes to a place of the output and writes there.
fn put(out: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    out.seek(SeekFrom::Start(offset))?;
    out.write_all(bytes)
}
