//! Master keys of encrypted directories: `--key FILE`.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER_PERMISSIVE;
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
    let mut bytes = bytes_of(OsStr::from_bytes(file), READ_MAX)?;
    let key = MasterKey::new(std::mem::take(&mut *bytes))?;
    Ok(match descriptor {
        Some(descriptor) => key.with_descriptor(descriptor),
        None => key,
    })
}

/// The longest key file of a LUKS volume, as cryptsetup has it.
const SECRET_MAX: u64 = 8 << 20;

/// The bytes of a key file. They are cleared when they are dropped, and never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The bytes.
    pub fn bytes(&self) -> &Zeroizing<Vec<u8>> {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What standard input held: it is read once, however often a command line is parsed.
static STDIN: OnceLock<Secret> = OnceLock::new();

/// The first bytes of a file, at most `most`; of standard input, for `-`, all that any key has.
fn bytes_of(file: &OsStr, most: u64) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let is_stdin = file.as_bytes() == b"-";
    if let (true, Some(known)) = (is_stdin, STDIN.get()) {
        return Ok(known.bytes().clone());
    }
    let most = if is_stdin { SECRET_MAX + 1 } else { most };
    // Room for all of it: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(most as usize));
    match is_stdin {
        true => std::io::stdin().take(most).read_to_end(&mut bytes)?,
        false => File::open(file)?.take(most).read_to_end(&mut bytes)?,
    };
    if is_stdin {
        let _first = STDIN.set(Secret(bytes.clone()));
    }
    Ok(bytes)
}

/// Reads a key file of a LUKS volume: all its bytes, or standard input for `-`.
///
/// # Errors
/// The file cannot be read, is empty or too long.
pub fn read_secret(word: OsString) -> Result<Secret, Box<dyn Error + Send + Sync>> {
    let bytes = bytes_of(&word, SECRET_MAX + 1)?;
    match bytes.len() as u64 {
        0 => Err("it is empty".into()),
        len if len > SECRET_MAX => Err(format!("it is longer than {SECRET_MAX} bytes").into()),
        _ => Ok(Secret(bytes)),
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
