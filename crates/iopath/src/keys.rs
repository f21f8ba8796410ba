//! Master keys of encrypted directories: `--key FILE`.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use base::LockedBytes;
use data_encoding::HEXLOWER_PERMISSIVE;
use fscrypt::MasterKey;

/// The longest form of a key, and one byte more that shows that a file is longer.
const READ_MAX: usize = MasterKey::PAYLOAD_SIZE + 1;
/// Digits of a descriptor in front of a file's name.
const DESCRIPTOR_DIGITS: usize = 16;

/// Reads a key: a file, or `-` for standard input, with a descriptor and a colon in front of it
/// where it is not the usual one. It holds the bytes of the key, or its payload in the kernel's
/// keyring.
///
/// # Errors
/// The file cannot be read or holds no key.
pub fn read(word: OsString) -> Result<MasterKey, Box<dyn Error + Send + Sync>> {
    let (descriptor, file) = split(word.as_bytes());
    let bytes = bytes_of(OsStr::from_bytes(file), READ_MAX)?;
    // Bytes of a key are never as many as those of a payload.
    let key = match bytes[..].try_into() {
        Ok(payload) => MasterKey::from_payload(payload)?,
        Err(_) => MasterKey::new(bytes.to_vec())?,
    };
    Ok(match descriptor {
        Some(descriptor) => key.with_descriptor(descriptor),
        None => key,
    })
}

/// The longest key file of a LUKS volume, as cryptsetup has it.
const SECRET_MAX: usize = 8 << 20;

/// What standard input held: it is read once, however often a command line is parsed.
static STDIN: OnceLock<LockedBytes> = OnceLock::new();

/// What standard input held, where it was read for a key.
pub fn from_stdin() -> Option<&'static LockedBytes> {
    STDIN.get()
}

/// The first bytes of a file, at most `most`; of standard input, for `-`, all that any key has.
fn bytes_of(file: &OsStr, most: usize) -> std::io::Result<LockedBytes> {
    if file.as_bytes() != b"-" {
        return LockedBytes::read(&mut File::open(file)?, most);
    }
    if let Some(known) = STDIN.get() {
        return Ok(known.clone());
    }
    // Not through the buffer of `Stdin`, which would keep a copy.
    let mut stdin = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let bytes = LockedBytes::read(&mut stdin, SECRET_MAX + 1)?;
    Ok(STDIN.get_or_init(|| bytes).clone())
}

/// Reads a key file of a LUKS volume: all its bytes, or standard input for `-`.
///
/// # Errors
/// The file cannot be read, is empty or too long.
pub fn read_secret(word: OsString) -> Result<LockedBytes, Box<dyn Error + Send + Sync>> {
    let bytes = bytes_of(&word, SECRET_MAX + 1)?;
    match bytes.len() {
        0 => Err("it is empty".into()),
        len if len > SECRET_MAX => Err(format!("it is longer than {SECRET_MAX} bytes").into()),
        _ => Ok(bytes),
    }
}

/// The root hash of dm-verity.
pub type RootHash = Arc<[u8]>;

/// Reads a root hash in hexadecimal digits.
///
/// # Errors
/// A sentence.
pub fn root_hash(text: &str) -> Result<RootHash, String> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes());
    bytes.map(Arc::from).map_err(|_| format!("`{text}` is no hash in hexadecimal digits"))
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
