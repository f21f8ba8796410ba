//! Master keys of encrypted directories: `--key FILE`.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use fscrypt::MasterKey;
use zeroize::Zeroizing;

/// The longest key, and one byte more that shows that a file is longer.
const READ_MAX: u64 = 65;
/// Digits of a descriptor in front of a file's name.
const DESCRIPTOR_DIGITS: usize = 16;

/// Reads a key: a file, or `-` for standard input, with a descriptor and a colon in front of it
/// where it is not the usual one.
///
/// # Errors
/// The file cannot be read or holds no key.
pub fn read(word: OsString) -> Result<MasterKey, Box<dyn Error + Send + Sync>> {
    let (descriptor, file) = split(word.as_bytes());
    let mut bytes = Zeroizing::new(Vec::with_capacity(READ_MAX as usize));
    match file {
        b"-" => std::io::stdin().take(READ_MAX).read_to_end(&mut bytes)?,
        _ => File::open(OsStr::from_bytes(file))?.take(READ_MAX).read_to_end(&mut bytes)?,
    };
    let key = MasterKey::new(std::mem::take(&mut *bytes))?;
    Ok(match descriptor {
        Some(descriptor) => key.with_descriptor(descriptor),
        None => key,
    })
}

/// A descriptor of 16 hexadecimal digits and a colon in front of the name, where there is one.
fn split(word: &[u8]) -> (Option<[u8; 8]>, &[u8]) {
    let parts = word.split_at_checked(DESCRIPTOR_DIGITS);
    let Some((digits, [b':', file @ ..])) = parts else { return (None, word) };
    let digits = std::str::from_utf8(digits).ok().filter(|text| !text.contains('+'));
    let number = digits.and_then(|text| u64::from_str_radix(text, 16).ok());
    number.map_or((None, word), |number| (Some(number.to_be_bytes()), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_stands_before_a_colon() {
        let descriptor = 0x0123_4567_89ab_cdefu64.to_be_bytes();
        assert_eq!(split(b"0123456789abcdef:k"), (Some(descriptor), b"k".as_slice()));
        for plain in ["key", "0123456789abcdeg:k", "0123456789abcdef", "a:b", "+123456789abcdef:k"]
        {
            assert_eq!(split(plain.as_bytes()), (None, plain.as_bytes()));
        }
    }
}
