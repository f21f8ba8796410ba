//! Container images: OCI layouts, in a directory or an archive, and what `docker save` writes.
//!
//! Source: the OCI image specification 1.1 (image-layout.md, manifest.md), and archives of
//! `docker save`, whose `manifest.json` lists files of layers.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Take};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::input::Place;
use crate::copy::picks::Picks;
use crate::copy::tar_index::Member;
use crate::text;

/// Longest document that is read.
const DOCUMENT_MAX: u64 = 16 << 20;
/// Where the files lie that are named by their SHA-256.
const BLOBS: &str = "blobs/sha256/";
/// Indexes inside of indexes.
const DEPTH_MAX: usize = 4;

/// An archive of changes to those before it.
#[derive(Clone, Debug)]
pub struct Layer {
    blob: Blob,
    /// SHA-256 of its bytes.
    digest: Option<String>,
    /// How people call it.
    pub shown: String,
    /// What of it is left in the end.
    pub picks: Arc<Picks>,
}

/// Part of a file.
#[derive(Clone, Debug)]
struct Blob {
    place: Place,
    offset: u64,
    size: u64,
}

impl Blob {
    fn open(&self) -> Result<Take<File>> {
        let mut file = self.place.open()?;
        file.seek(SeekFrom::Start(self.offset))?;
        Ok(file.take(self.size))
    }
}

impl Layer {
    /// Its bytes, compressed or not.
    ///
    /// # Errors
    /// The host refuses.
    pub fn open(&self) -> Result<Box<dyn Read + Send>> {
        Ok(Box::new(self.blob.open()?))
    }

    /// Compares its bytes with its digest.
    ///
    /// # Errors
    /// They differ, or cannot be read.
    pub fn verify(&self) -> Result<()> {
        let Some(wanted) = &self.digest else { return Ok(()) };
        let mut hash = Sha256::new();
        std::io::copy(&mut self.blob.open()?, &mut hash).with_context(|| self.shown.clone())?;
        compare(wanted, &hash.finalize()).with_context(|| self.shown.clone())
    }
}

/// Compares a digest with the one that is said.
fn compare(wanted: &str, found: &[u8]) -> Result<()> {
    let found = text::hex(found);
    match wanted == found {
        true => Ok(()),
        false => bail!("is damaged: its SHA-256 is {found}"),
    }
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    layers: Vec<String>,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
}

/// Where the files of a layout are.
enum Files<'f> {
    Folder(&'f Path),
    Members(&'f Place, &'f [Member]),
}

impl Files<'_> {
    fn shown(&self) -> String {
        match self {
            Files::Folder(path) => path.display().to_string(),
            Files::Members(place, _) => place.shown.clone(),
        }
    }

    fn find(&self, name: &str) -> Option<Blob> {
        match self {
            Files::Folder(folder) => {
                let path = folder.join(name);
                let size = path.metadata().ok().filter(|meta| meta.is_file())?.len();
                Some(Blob { place: Place::named(&path), offset: 0, size })
            }
            Files::Members(place, members) => {
                let mut name = name.as_bytes().to_vec();
                // Layers that two images share are symlinks in older archives.
                for _ in 0..DEPTH_MAX {
                    let member = members.iter().find(|member| relative(&member.path) == name)?;
                    if member.target.is_empty() {
                        let (offset, size) = (member.offset, member.size);
                        return Some(Blob { place: (*place).clone(), offset, size });
                    }
                    name = beside(&name, &member.target);
                }
                None
            }
        }
    }

    fn document<T: for<'d> Deserialize<'d>>(&self, name: &str) -> Result<Option<T>> {
        let shown = || format!("{}: {name}", self.shown());
        let Some(blob) = self.find(name) else { return Ok(None) };
        if blob.size > DOCUMENT_MAX {
            bail!("{}: {} bytes are too many", shown(), blob.size);
        }
        let mut text = Vec::new();
        blob.open()?.read_to_end(&mut text).with_context(shown)?;
        if let Some(digest) = name.strip_prefix(BLOBS) {
            compare(digest, &Sha256::digest(&text)).with_context(shown)?;
        }
        serde_json::from_slice(&text).with_context(shown).map(Some)
    }

    /// The file of a digest: only SHA-256 is known.
    fn blob(&self, digest: &str) -> Result<(Blob, String)> {
        let hex = digest.strip_prefix("sha256:");
        let hex = hex.filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let hex = hex.with_context(|| format!("{}: digest `{digest}`", self.shown()))?;
        let name = format!("{BLOBS}{hex}");
        let blob = self.find(&name);
        let blob = blob.with_context(|| format!("{}: {name} is missing", self.shown()))?;
        Ok((blob, hex.to_ascii_lowercase()))
    }

    /// The layers of a manifest, or of the one for this machine in an index.
    fn layers(&self, index: Index, platform: Option<&str>, depth: usize) -> Result<Vec<Layer>> {
        let chosen = choose(&index.manifests, platform).with_context(|| self.shown())?;
        let (_, hex) = self.blob(&chosen.digest)?;
        let name = format!("{BLOBS}{hex}");
        if chosen.media_type.contains("index") || chosen.media_type.contains("manifest.list") {
            if depth == DEPTH_MAX {
                bail!("{}: indexes inside of indexes, more than {DEPTH_MAX}", self.shown());
            }
            let index = self.document::<Index>(&name)?.context("an index is missing")?;
            return self.layers(index, platform, depth + 1);
        }
        let manifest = self.document::<Manifest>(&name)?.context("a manifest is missing")?;
        let layer = |descriptor: &Descriptor| {
            if descriptor.media_type.contains("encrypted") {
                bail!("{}: layer {} is encrypted", self.shown(), descriptor.digest);
            }
            let (blob, hex) = self.blob(&descriptor.digest)?;
            let shown = format!("{}: layer {}", self.shown(), descriptor.digest);
            Ok(Layer { blob, digest: Some(hex), shown, picks: Arc::default() })
        };
        manifest.layers.iter().map(layer).collect()
    }

    /// The layers of what `docker save` wrote.
    fn saved(&self, images: Vec<Saved>) -> Result<Vec<Layer>> {
        let names = || {
            let tags = images.iter().map(|image| image.repo_tags.clone().unwrap_or_default());
            tags.flatten().collect::<Vec<_>>().join(", ")
        };
        let [image] = &images[..] else {
            bail!("{}: holds {} images: {}", self.shown(), images.len(), names());
        };
        let layer = |name: &String| {
            let shown = format!("{}: {name}", self.shown());
            let blob = self.find(name).with_context(|| format!("{shown} is missing"))?;
            // In newer archives the name says the digest.
            let digest = name.strip_prefix(BLOBS).map(str::to_owned);
            Ok(Layer { blob, digest, shown, picks: Arc::default() })
        };
        image.layers.iter().map(layer).collect()
    }
}

/// The layers of an OCI layout in a directory.
///
/// # Errors
/// Something is missing or damaged.
pub fn layout(folder: &Path, platform: Option<&str>) -> Result<Vec<Layer>> {
    let files = Files::Folder(folder);
    let index = files.document::<Index>("index.json")?;
    let index = index.with_context(|| format!("{}: has no index.json", folder.display()))?;
    files.layers(index, platform, 0)
}

/// The layers of an archive; none if it holds ordinary files.
///
/// # Errors
/// Something is missing or damaged.
pub fn archive(
    place: &Place,
    members: &[Member],
    platform: Option<&str>,
) -> Result<Option<Vec<Layer>>> {
    let files = Files::Members(place, members);
    if files.find("oci-layout").is_some()
        && let Some(index) = files.document::<Index>("index.json")?
    {
        return files.layers(index, platform, 0).map(Some);
    }
    // A tree may have a manifest.json of its own.
    match files.document::<Vec<Saved>>("manifest.json") {
        Ok(Some(images)) => files.saved(images).map(Some),
        _ => Ok(None),
    }
}

/// The manifest for a machine: the only one, or the one that is asked for, or this machine's.
fn choose<'d>(manifests: &'d [Descriptor], wanted: Option<&str>) -> Result<&'d Descriptor> {
    let name = |descriptor: &Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.map(|platform| format!("{}/{}", platform.os, platform.architecture))
    };
    if let ([only], None) = (manifests, wanted) {
        return Ok(only);
    }
    let own = format!("linux/{}", architecture());
    let wanted = wanted.unwrap_or(&own);
    let mut fitting = manifests.iter().filter(|one| name(one).as_deref() == Some(wanted));
    let found = fitting.next();
    if fitting.next().is_some() {
        bail!("several images are for {wanted}; copy one of them into a layout of its own");
    }
    found.with_context(|| {
        let names: Vec<String> = manifests.iter().filter_map(name).collect();
        format!("no image is for {wanted}; there are: {}; --platform names one", names.join(", "))
    })
}

/// This machine, as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// A name without `./` before it.
fn relative(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"./").unwrap_or(name)
}

/// What a symlink beside `name` leads to.
fn beside(name: &[u8], target: &[u8]) -> Vec<u8> {
    let mut path: Vec<&[u8]> = name.split(|&b| b == b'/').collect();
    path.pop();
    for part in target.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_archives_are_followed() {
        assert_eq!(beside(b"a/layer.tar", b"../b/layer.tar"), b"b/layer.tar");
        assert_eq!(relative(b"./oci-layout"), b"oci-layout");
    }

    #[test]
    fn an_image_is_chosen_by_its_machine() {
        let one = |os: &str, arch: &str| Descriptor {
            media_type: String::new(),
            digest: arch.to_owned(),
            platform: Some(Platform { architecture: arch.to_owned(), os: os.to_owned() }),
        };
        let list = [one("linux", "arm64"), one("linux", "amd64"), one("unknown", "unknown")];
        assert_eq!(choose(&list, Some("linux/arm64")).expect("found").digest, "arm64");
        let error = choose(&list, Some("linux/s390x")).err().expect("none").to_string();
        assert!(error.contains("linux/arm64, linux/amd64"), "{error}");
        assert!(choose(&list[..1], None).is_ok());
        assert!(choose(&[one("linux", "a"), one("linux", "a")], Some("linux/a")).is_err());
    }
}
