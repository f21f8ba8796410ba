//! What is counted for each crate's product, tests left out:
//!
//! - `tuples`: functions with a tuple among their parameters: a struct has names;
//! - `pairs`: functions with two bare `u64` side by side, which a caller can swap: newtypes, or one
//!   range;
//! - `twins`: functions of at least [`TWIN_LINES`] lines that have one name in ext4 and in XFS, and
//!   `twin-lines`, the lines of both: what both do belongs to `vfs` or `cache`;
//! - `dead`: allowances of dead code;
//! - `word`: words of our own where the field has another one ([`WORDS`]), in code and in docs.

use super::Findings;
use crate::source::{self, Source};
use anyhow::{Context, Result};
use quote::ToTokens;
use std::collections::BTreeMap;
use std::path::Path;

/// Shorter functions of one name are an interface, not a repetition.
const TWIN_LINES: usize = 12;

/// Words that are not to be used, with the field's words for them.
const WORDS: &[(&str, &str)] = &[
    ("crew", "workers"),
    ("lay_down", "submit"),
    ("loose", "recovery"),
    ("mend", "restore, repair"),
    ("mended", "restored, repaired"),
    ("mends", "restores, repairs"),
    ("staged", "CoW fork"),
    ("straight", "splice"),
    ("tell", "report"),
    ("tells", "reports"),
    ("told", "reported"),
];

/// Adds all counts above 0.
pub fn count(found: &mut Findings) -> Result<()> {
    let mut sizes: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for name in source::crates()? {
        for source in source::product(&name)?.iter().filter(|source| !source.is_test()) {
            shapes(&name, source, found);
            if let Some(format) = ["ext4", "xfs"].into_iter().find(|format| *format == name) {
                let sizes = sizes.entry(format).or_default();
                source::functions(&source.tree, |signature, lines| {
                    if lines >= TWIN_LINES {
                        *sizes.entry(signature.ident.to_string()).or_default() += lines;
                    }
                });
            }
        }
    }
    if let (Some(ext4), Some(xfs)) = (sizes.get("ext4"), sizes.get("xfs")) {
        for (name, lines) in ext4 {
            if let Some(others) = xfs.get(name) {
                add(found, "twins ext4 and xfs", 1);
                add(found, "twin-lines ext4 and xfs", lines + others);
            }
        }
    }
    words(found)
}

fn add(found: &mut Findings, key: &str, by: usize) {
    *found.entry(key.to_owned()).or_default() += by;
}

/// Parameters and allowances of one file.
fn shapes(name: &str, source: &Source, found: &mut Findings) {
    source::functions(&source.tree, |signature, _| {
        let types: Vec<&syn::Type> = signature
            .inputs
            .iter()
            .filter_map(|input| match input {
                syn::FnArg::Typed(typed) => Some(&*typed.ty),
                syn::FnArg::Receiver(_) => None,
            })
            .collect();
        if types.iter().any(|ty| is_tuple(ty)) {
            add(found, &format!("tuples crates/{name}"), 1);
        }
        if types.windows(2).any(|pair| pair.iter().all(|ty| is_u64(ty))) {
            add(found, &format!("pairs crates/{name}"), 1);
        }
    });
    let allowances = source.tree.to_token_stream().to_string().matches("dead_code").count();
    if allowances > 0 {
        add(found, &format!("dead crates/{name}"), allowances);
    }
}

fn is_tuple(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

fn is_u64(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("u64"))
}

/// Words in the crates' product and in the documents, the changelog left out.
fn words(found: &mut Findings) -> Result<()> {
    let mut texts = Vec::new();
    for name in source::crates()? {
        texts.extend(source::files(&Path::new("crates").join(name).join("src"))?);
    }
    texts.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(Into::into));
    for entry in std::fs::read_dir("docs").context("docs")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            texts.push(path);
        }
    }
    for path in texts {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        for word in text.split(|c| !is_word(c)) {
            if let Some((ours, theirs)) =
                WORDS.iter().find(|(ours, _)| word.eq_ignore_ascii_case(ours))
            {
                add(found, &format!("word {ours} (say: {theirs})"), 1);
            }
        }
    }
    Ok(())
}
