//! Images that are kept compressed beside a test.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Unpacks an image; what reads as zeros stays a hole.
///
/// # Panics
/// There is no such image, or it is none of zstd.
pub fn unpack(from: &Path, to: &Path) {
    let packed = File::open(from).expect("the packed image opens");
    let mut stream = zstd::Decoder::new(packed).expect("a stream of zstd");
    let file = File::create(to).expect("the image is made");
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match stream.read(&mut buffer[filled..]).expect("the stream is whole") {
                0 => break,
                count => filled += count,
            }
        }
        if buffer[..filled].iter().any(|&byte| byte != 0) {
            file.write_all_at(&buffer[..filled], at).expect("the image takes it");
        }
        at += filled as u64;
        if filled < buffer.len() {
            break;
        }
    }
    file.set_len(at).expect("the size");
}
