//! The words of `mkfs -E`.

use anyhow::{Context, Result, anyhow, bail};
use ext4::MkfsOptions;
use ext4::format::casefold::Encoding;
use ext4::mkfs::Span;

use crate::text;

/// The words, and what is behind the equals sign.
fn words(extended: &[String]) -> impl Iterator<Item = (&str, Option<&str>)> {
    let words = extended.iter().flat_map(|words| words.split(','));
    words.map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    })
}

/// Whether a word is there.
pub fn has(extended: &[String], wanted: &str) -> bool {
    words(extended).any(|(name, _)| name == wanted)
}

/// The byte at which the file system begins.
///
/// # Errors
/// No size.
pub fn offset(extended: &[String]) -> Result<Option<u64>> {
    let value = words(extended).filter(|(name, _)| *name == "offset").last();
    let parse = |(_, value): (&str, Option<&str>)| text::parse_size(value.unwrap_or_default());
    value.map(parse).transpose().map_err(|error| anyhow!("-E offset: {error}"))
}

/// Takes over what the words of `-E` say. What only decides when mke2fs writes zeros is passed
/// over: here tables are zeros at once.
///
/// # Errors
/// The word that is not known, or its value.
pub fn apply(extended: &[String], made: &mut MkfsOptions) -> Result<()> {
    for (name, value) in words(extended) {
        let known = one(name, value, made).with_context(|| match value {
            Some(value) => format!("-E {name}={value}"),
            None => format!("-E {name}"),
        })?;
        if !known {
            bail!(
                "-E {name}: known are the words of mke2fs 1.47.4: encoding=, encoding_flags=, \
                 hash_seed=, mmp_update_interval=, no_copy_xattrs, num_backup_sb=, offset=, \
                 orphan_file_size=, packed_meta_blocks, quotatype=, resize=, revision=, \
                 root_owner, root_perms=, root_selinux=, stride=, stripe_width=, test_fs"
            );
        }
    }
    Ok(())
}

/// One word. False where it is not known.
fn one(name: &str, value: Option<&str>, made: &mut MkfsOptions) -> Result<bool> {
    match (name, value) {
        ("encoding", None | Some("utf8" | "utf8-12.1")) => {
            made.encoding.get_or_insert(Encoding::default());
        }
        ("encoding", _) => bail!("not utf8 or utf8-12.1"),
        ("encoding_flags", Some("strict")) => made.encoding = Some(Encoding { strict: true }),
        ("encoding_flags", Some("nostrict")) => made.encoding = Some(Encoding::default()),
        ("encoding_flags", _) => bail!("not strict or nostrict"),
        ("orphan_file_size", Some(size)) => made.orphan_file_size = Some(span(size)?),
        ("resize", Some(size)) => made.resize_limit = Some(span(size)?),
        ("hash_seed", Some(seed)) => made.hash_seed = Some(super::parse_uuid(seed)?),
        ("stride", Some(blocks)) => made.stride = number(blocks)?,
        ("stripe_width" | "stripe-width", Some(blocks)) => made.stripe_width = number(blocks)?,
        ("num_backup_sb", Some(copies)) => made.backup_supers = number(copies)?,
        ("mmp_update_interval", Some(seconds)) => made.mmp_interval = number(seconds)?,
        ("packed_meta_blocks", flag) => made.packed_meta_blocks = switch(flag)?,
        ("quotatype", Some(list)) => made.quota_kinds = Some(quota_kinds(list)?),
        ("test_fs", None) => made.test_fs = true,
        ("revision", Some("0" | "1")) => made.revision_0 = value == Some("0"),
        ("root_owner", None) => {
            let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
            made.root_owner = (user.as_raw(), group.as_raw());
        }
        ("root_owner", Some(owner)) => {
            let ids = owner
                .split_once(':')
                .and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
            made.root_owner = ids.context("not UID:GID")?;
        }
        ("root_perms", Some(mode)) => {
            let mode = u16::from_str_radix(mode, 8).ok().filter(|&mode| mode <= 0o7777);
            made.root_mode = mode.context("not octal digits")?;
        }
        ("root_selinux", Some(label)) => made.root_selinux = Some(label.to_string()),
        ("desc_size", Some("64")) => {}
        ("desc_size", _) => bail!("descriptors have 64 bytes with 64bit, and 32 without"),
        ("lazy_itable_init" | "lazy_journal_init" | "assume_storage_prezeroed", flag) => {
            switch(flag)?;
        }
        // Of them others know: the place, and how the source is copied.
        ("offset", Some(_)) | ("discard" | "nodiscard" | "no_copy_xattrs", None) => {}
        _ => return Ok(false),
    }
    Ok(true)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().ok().context("not a number in range")
}

fn span(text: &str) -> Result<Span> {
    text::parse_span(text).map_err(anyhow::Error::msg)
}

/// A word that may say 0 or 1.
fn switch(value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => bail!("not 0 or 1"),
    }
}

/// Kinds with colons between them.
fn quota_kinds(list: &str) -> Result<[bool; 3]> {
    let mut kinds = [false; 3];
    for word in list.split(':') {
        let names = ["usrquota", "grpquota", "prjquota"];
        let index = names.iter().position(|&name| name == word);
        kinds[index.with_context(|| format!("{word}: not one of {}", names.join(", ")))?] = true;
    }
    Ok(kinds)
}
