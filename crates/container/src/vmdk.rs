//! VMDK: sparse and streamOptimized extents, and descriptors that name sparse and flat ones.
//!
//! Source: VMware, "Virtual Disk Format 5.0" (technical note, 2011); images that `qemu-img` makes.

mod descriptor;
mod sparse;

use std::sync::Arc;

use crate::Error;
use crate::bytes::text;
use crate::chain::Chain;
use crate::error::{CONVERT, Subject};
use crate::image::{Fact, Image};
use crate::kind::Format;
use crate::source::{self, Source};
use descriptor::{Descriptor, Kind};
use sparse::Sparse;

const SECTOR: u64 = 512;
/// Bytes of a descriptor.
const TEXT_MAX: u64 = 1 << 20;

/// Where a part of the disk is.
enum Content {
    Sparse(Box<Sparse>),
    /// The bytes of a file, from this one on.
    Flat(Arc<dyn Source>, u64),
    Zero,
}

struct Extent {
    /// First byte of the disk.
    start: u64,
    content: Content,
}

struct Vmdk {
    size: u64,
    kind: String,
    extents: Vec<Extent>,
    files: Vec<String>,
    threads: usize,
}

/// Opens an image: one file with everything, or a text that names the files of its parts.
pub(crate) fn open(
    source: Arc<dyn Source>,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    let subject = Subject { name: source.name().to_owned(), format: "VMDK" };
    let threads = source.threads();
    let start = source::read_some(&*source, 0, 4)?;
    match &start[..] {
        b"KDMV" => {
            let sparse = Sparse::open(source, subject.clone(), chain)?;
            let descriptor = sparse.descriptor()?;
            let kind = match descriptor {
                Some(text) => {
                    let descriptor = Descriptor::parse(&text, &subject)?;
                    descriptor.refuse_parent(&subject)?;
                    descriptor.kind
                }
                None => "sparse".to_owned(),
            };
            let size = sparse.size();
            let extents = vec![Extent { start: 0, content: Content::Sparse(Box::new(sparse)) }];
            Ok(Arc::new(Vmdk { size, kind, extents, files: Vec::new(), threads }))
        }
        b"COWD" => Err(subject.unsupported("a COWD extent (of old ESX servers)", CONVERT)),
        _ => parts(source, &subject, chain),
    }
}

/// Opens the files that a descriptor names.
fn parts(
    source: Arc<dyn Source>,
    subject: &Subject,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    if source.size() > TEXT_MAX {
        let what = format!("{} bytes of text", source.size());
        return Err(subject.damaged("descriptor", what));
    }
    let text = source::read_some(&*source, 0, TEXT_MAX as usize)?;
    let descriptor = Descriptor::parse(&text, subject)?;
    descriptor.refuse_parent(subject)?;
    let (mut size, mut extents, mut files) = (0u64, Vec::new(), Vec::new());
    let mut threads = source.threads();
    for extent in &descriptor.extents {
        let place = format!("extent `{}`", extent.file);
        let len = extent.sectors * SECTOR;
        let content = match extent.kind {
            Kind::Zero => Content::Zero,
            Kind::Flat => {
                let file = chain.file(subject, &extent.file)?;
                let from = extent.offset * SECTOR;
                if from + len > file.size() {
                    let what =
                        format!("{len} bytes from byte {from}, the file has {}", file.size());
                    return Err(subject.damaged(place, what));
                }
                threads = threads.max(file.threads());
                Content::Flat(file, from)
            }
            Kind::Sparse => {
                let file = chain.file(subject, &extent.file)?;
                threads = threads.max(file.threads());
                let part = Subject { name: file.name().to_owned(), format: "VMDK" };
                let sparse = Sparse::open(file, part, chain)?;
                if sparse.size() < len {
                    let what = format!("{len} bytes, the file holds {}", sparse.size());
                    return Err(subject.damaged(place, what));
                }
                Content::Sparse(Box::new(sparse))
            }
        };
        if extent.kind != Kind::Zero {
            files.push(extent.file.clone());
        }
        extents.push(Extent { start: size, content });
        size += len;
    }
    if extents.is_empty() {
        return Err(subject.damaged("descriptor", "it names no extents"));
    }
    Ok(Arc::new(Vmdk { size, kind: descriptor.kind, extents, files, threads }))
}

impl Image for Vmdk {
    fn format(&self) -> &'static str {
        Format::Vmdk.name()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let index = self.extents.partition_point(|extent| extent.start <= at) - 1;
            let extent = &self.extents[index];
            let end = self.extents.get(index + 1).map_or(self.size, |next| next.start);
            let len = ((end - at).min((buf.len() - done) as u64)) as usize;
            let part = &mut buf[done..done + len];
            let within = at - extent.start;
            match &extent.content {
                Content::Zero => part.fill(0),
                Content::Flat(file, from) => source::read(&**file, from + within, part)?,
                Content::Sparse(sparse) => sparse.read_at(within, part)?,
            }
            done += len;
        }
        Ok(())
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        let mut facts = vec![("kind", Fact::Text(text(self.kind.as_bytes())))];
        let sparse = self.extents.iter().find_map(|extent| match &extent.content {
            Content::Sparse(sparse) => Some(sparse),
            _ => None,
        });
        if let Some(sparse) = sparse {
            facts.push(("cluster_size", sparse.grain().into()));
            facts.push(("compressed", Fact::Flag(sparse.compressed())));
        }
        if !self.files.is_empty() {
            let files = self.files.iter().map(|file| text(file.as_bytes()));
            facts.push(("files", Fact::Lines(files.collect())));
        }
        Ok(facts)
    }

    fn threads(&self) -> usize {
        self.threads
    }
}
