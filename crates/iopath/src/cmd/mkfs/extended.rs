//! The words of `mkfs -E`.

use anyhow::{Context, Result, bail};
use ext4::MkfsOptions;
use ext4::format::casefold::Encoding;
use ext4::mkfs::OrphanFileSize;

use crate::text;

/// Takes over what the words of `-E` say. What only decides when mke2fs writes zeros is passed
/// over: here tables are zeros at once.
///
/// # Errors
/// The word that is not known, or its value.
pub fn apply(extended: &[String], made: &mut MkfsOptions) -> Result<()> {
    for word in extended.iter().flat_map(|words| words.split(',')) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match (name, value) {
            ("encoding", "utf8" | "utf8-12.1") => {
                made.encoding.get_or_insert(Encoding::default());
            }
            ("encoding", other) => bail!("-E {word}: {other} is not utf8 or utf8-12.1"),
            ("encoding_flags", "strict") => made.encoding = Some(Encoding { strict: true }),
            ("encoding_flags", other) => bail!("-E {word}: {other} is not strict"),
            ("orphan_file_size", size) => made.orphan_file_size = Some(orphan_file_size(size)?),
            ("hash_seed", seed) => made.hash_seed = Some(super::parse_uuid(seed)?),
            ("root_owner", owner) => {
                let ids = owner
                    .split_once(':')
                    .and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
                made.root_owner = ids.with_context(|| format!("-E {word}: not UID:GID"))?;
            }
            ("root_perms", mode) => {
                let mode = u16::from_str_radix(mode, 8).ok().filter(|&mode| mode <= 0o7777);
                made.root_mode = mode.with_context(|| format!("-E {word}: not octal digits"))?;
            }
            ("lazy_itable_init" | "lazy_journal_init" | "assume_storage_prezeroed", _)
            | ("discard" | "nodiscard", "") => {}
            _ => bail!(
                "-E {word}: known are encoding=, encoding_flags=strict, hash_seed=, \
                 orphan_file_size=, root_owner=UID:GID, root_perms=MODE"
            ),
        }
    }
    Ok(())
}

/// The size of an orphan file as mke2fs takes it: a number of blocks, or bytes with a unit.
///
/// # Errors
/// A sentence.
pub fn orphan_file_size(word: &str) -> Result<OrphanFileSize> {
    let size = text::parse_size(word).map_err(anyhow::Error::msg)?;
    Ok(match word.bytes().all(|byte| byte.is_ascii_digit()) {
        true => OrphanFileSize::Blocks(size),
        false => OrphanFileSize::Bytes(size),
    })
}
