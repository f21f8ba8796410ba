//! Images between files and memory. Holes and pages that were never written are neither read,
//! copied nor written: most of a test's image is empty.

use std::os::unix::fs::FileExt;
use std::path::Path;

use device::MemoryDevice;
use rustix::fs::SeekFrom;

/// How much is written or read in one piece.
const PIECE: usize = 64 << 10;

/// The bytes of an image file. Blocks.
///
/// # Panics
/// Where it cannot be read.
pub fn read(path: &Path) -> Vec<u8> {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = vec![0; file.metadata().expect("the image has a size").len() as usize];
    for (start, end) in data(&file) {
        file.read_exact_at(&mut bytes[start..end], start as u64).expect("the image can be read");
    }
    bytes
}

/// The content of an image file as a device in memory, which is no larger than the file's data.
/// Blocks.
///
/// # Panics
/// Where it cannot be read.
pub fn load(path: &Path) -> MemoryDevice {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let device = MemoryDevice::new(file.metadata().expect("the image has a size").len());
    let mut piece = vec![0; PIECE];
    for (start, end) in data(&file) {
        for at in (start..end).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(end - at)];
            file.read_exact_at(piece, at as u64).expect("the image can be read");
            device.load_at(at as u64, piece);
        }
    }
    device
}

/// The ranges of a file that hold data, in bytes from its start.
fn data(file: &std::fs::File) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    // Behind the last data, and where there is none, the host says ENXIO.
    while let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, SeekFrom::Hole(start)).expect("every file ends with a hole");
        ranges.push((start as usize, at as usize));
    }
    ranges
}

/// Writes bytes to a temporary file; blocks of zeros become holes. Blocks.
///
/// # Panics
/// Where the temporary file cannot be made or written.
pub fn write(image: &[u8]) -> tempfile::NamedTempFile {
    let file = empty(image.len() as u64);
    for (index, piece) in image.chunks(PIECE).enumerate() {
        if !base::page::is_zero(piece) {
            let offset = (index * PIECE) as u64;
            file.as_file().write_all_at(piece, offset).expect("the temporary file takes the data");
        }
    }
    file
}

/// Writes the content of a device to a temporary file. Blocks.
///
/// # Panics
/// As [`write()`].
pub fn write_device(device: &MemoryDevice) -> tempfile::NamedTempFile {
    let file = empty(block::Device::info(device).bytes());
    // Neighbours in one write.
    let mut run: Vec<u8> = Vec::new();
    let mut start = 0;
    device.each_page(|offset, page| {
        if offset != start + run.len() as u64 || run.len() >= PIECE {
            file.as_file().write_all_at(&run, start).expect("the temporary file takes the data");
            run.clear();
            start = offset;
        }
        run.extend_from_slice(page);
    });
    file.as_file().write_all_at(&run, start).expect("the temporary file takes the data");
    file
}

/// A temporary file of so many bytes, all of it a hole.
fn empty(bytes: u64) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().prefix("iopath-").suffix(".img").tempfile();
    let file = file.expect("a temporary file can be made");
    file.as_file().set_len(bytes).expect("the temporary file takes the size");
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: bytes, a device and a file with holes have the same content in either direction, with
    /// data at the start, across pieces, alone in a page, and in a last page that is short.
    #[test]
    fn there_and_back() {
        let mut bytes = vec![0; (1 << 20) + 512];
        bytes[..9].fill(1);
        bytes[PIECE - 5000..3 * PIECE + 5].fill(2);
        bytes[700_000] = 3;
        *bytes.last_mut().expect("a byte") = 4;
        let file = write(&bytes);
        assert!(read(file.path()) == bytes);
        let device = load(file.path());
        assert!(device.snapshot() == bytes);
        assert!(device.used_bytes() < 400_000, "{}", device.used_bytes());
        let again = write_device(&device);
        assert!(std::fs::read(again.path()).expect("the file") == bytes);
        let nothing = write_device(&MemoryDevice::new(1 << 20));
        assert!(read(nothing.path()) == vec![0; 1 << 20]);
    }
}
