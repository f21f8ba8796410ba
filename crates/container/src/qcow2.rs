//! qcow2, versions 2 and 3: read and written, with backing files, compressed clusters of both
//! kinds, extended tables, data files, and each snapshot as an image of its own.
//!
//! Source: QEMU, "docs/interop/qcow2.rst" (the specification of the format); what `qemu-img`
//! accepts was observed.

mod change;
mod counts;
pub(crate) mod header;
mod map;
mod snapshot;

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::bytes::{be64, text};
use crate::chain::Chain;
use crate::error::Subject;
use crate::image::{Fact, Image};
use crate::kind::Format;
use crate::lru::Lru;
use crate::recognise::recognise;
use crate::source::{self, Source};
use crate::target::Target;
use header::{Backing, Compression, Header};
use map::ClusterPlace;
use snapshot::Snapshot;

/// Bytes of a table of the first level: what QEMU allows, 16 TiB and more of disk.
const L1_MAX: u64 = 32 << 20;
/// Bytes of a table of the second level that are read and kept together.
const SLICE: u64 = 4096;
/// Bytes of tables of the second level that are read to count clusters for `facts`, from a file.
const COUNT_MAX: u64 = 64 << 20;

/// An open qcow2 image.
struct Qcow2 {
    subject: Subject,
    source: Arc<dyn Source>,
    /// Where clusters that are not compressed lie: the file itself, or its data file.
    data: Arc<dyn Source>,
    header: Header,
    l1: Vec<u64>,
    slices: Lru<Arc<Vec<u8>>>,
    /// Compressed clusters as they are read, by their place.
    unpacked: Lru<Arc<Vec<u8>>>,
    backing: Option<Arc<dyn Image>>,
    snapshots: Vec<Snapshot>,
    /// The snapshot that this image is; none: its present state.
    shown: Option<String>,
}

/// Opens an image, or one of its snapshots.
pub(crate) fn open(
    source: Arc<dyn Source>,
    snapshot: Option<&str>,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    Ok(Arc::new(tables(source, snapshot, chain)?))
}

/// Opens an image to write to it in place. The files behind it are read.
pub(crate) fn open_to_change(
    file: Arc<dyn Target>,
    snapshot: Option<&str>,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    let image = tables(file.clone(), snapshot, chain)?;
    Ok(Arc::new(change::open(image, file)?))
}

fn tables(
    source: Arc<dyn Source>,
    snapshot: Option<&str>,
    chain: &mut Chain<'_>,
) -> Result<Qcow2, Error> {
    let subject = Subject { name: source.name().to_owned(), format: "qcow2" };
    let mut header = Header::read(&*source, &subject)?;
    let snapshots = snapshot::list(&*source, &subject, &header)?;
    let shown = match snapshot {
        None => None,
        Some(wanted) => {
            let found = snapshot::find(&snapshots, wanted, &subject)?;
            header.show(found);
            Some(found.to_string())
        }
    };
    header.check_l1(&*source, &subject)?;
    let l1_bytes = u64::from(header.l1_size) * 8;
    chain.take(&subject, "the table of the first level (L1)", l1_bytes)?;
    let l1 = source::read_some(&*source, header.l1_offset, l1_bytes as usize)?;
    let l1 = l1.chunks_exact(8).map(|entry| be64(entry, 0)).collect();
    let cache = chain.cache_bytes();
    let data = match &header.data_file {
        Some(name) => chain.file(&subject, name)?,
        None => source.clone(),
    };
    let backing = match &header.backing {
        Some(backing) => Some(open_backing(backing, &subject, chain)?),
        None => None,
    };
    let slice = header.l2_bytes().min(SLICE);
    Ok(Qcow2 {
        slices: Lru::new((cache / 4 / slice) as usize),
        unpacked: Lru::new((cache / header.cluster()) as usize),
        subject,
        source,
        data,
        header,
        l1,
        backing,
        snapshots,
        shown,
    })
}

/// Opens the file behind an image. Where the image does not say its format, it is recognised; such
/// a file may not name further ones, because its content may be a guest's.
fn open_backing(
    backing: &Backing,
    subject: &Subject,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    let source = chain.file(subject, &backing.name)?;
    let format = match &backing.format {
        Some(name) => name.parse().map_err(|error: String| {
            subject.unsupported(format!("backing file `{}`: {error}", backing.name), "")
        })?,
        None => {
            let found = recognise(&*source)?.unwrap_or(Format::Raw);
            let names_files = found == Format::Qcow2 && {
                let further = Subject { name: source.name().to_owned(), format: "qcow2" };
                let header = Header::read(&*source, &further)?;
                header.backing.is_some() || header.data_file.is_some()
            };
            if names_files || found == Format::Vmdk {
                let what = format!(
                    "it does not record the format of its backing file `{}`, which names \
                     further files",
                    backing.name
                );
                let (name, found) = (&backing.name, found.name());
                let hint = format!("record it: qemu-img rebase -u -b {name} -F {found} IMAGE");
                return Err(subject.unsupported(what, hint));
            }
            found
        }
    };
    chain.image(source, format)
}

impl Image for Qcow2 {
    fn format(&self) -> &'static str {
        Format::Qcow2.name()
    }

    fn size(&self) -> u64 {
        self.header.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (place, len) = self.run(at, buf.len() - done)?;
            self.fetch(place, at, &mut buf[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    fn holds(&self, range: Range<u64>) -> Result<bool, Error> {
        let (mut at, end) = (range.start, range.end.min(self.header.size));
        while at < end {
            let (place, len) = self.run(at, (end - at) as usize)?;
            if place != ClusterPlace::Absent {
                return Ok(true);
            }
            at += len as u64;
        }
        Ok(false)
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        let header = &self.header;
        let mut facts: Vec<(&'static str, Fact)> = vec![
            ("version", header.version.into()),
            ("cluster_size", header.cluster().into()),
            ("compression", header.compression.name().into()),
        ];
        if let Some(shown) = &self.shown {
            facts.push(("shown_snapshot", shown.clone().into()));
        }
        if let Some((used, packed)) = self.count()? {
            facts.push(("clusters", header.size.div_ceil(header.cluster()).into()));
            facts.push(("clusters_used", used.into()));
            facts.push(("clusters_compressed", packed.into()));
        }
        let marks = header.marks();
        if !marks.is_empty() {
            facts.push(("marks", Fact::Lines(marks)));
        }
        if let Some(name) = &header.data_file {
            facts.push(("data_file", text(name.as_bytes()).into()));
        }
        let mut lines = Vec::new();
        if let (Some(backing), Some(image)) = (&header.backing, &self.backing) {
            let name = text(backing.name.as_bytes());
            lines.push(format!("{name} ({}, {} bytes)", image.format(), image.size()));
            for (key, fact) in image.facts()? {
                if let ("backing", Fact::Lines(further)) = (key, fact) {
                    lines.extend(further);
                }
            }
        }
        if !lines.is_empty() {
            facts.push(("backing", Fact::Lines(lines)));
        }
        if !self.snapshots.is_empty() {
            facts.push(("snapshots", Fact::Rows(self.snapshots.iter().map(|s| s.row()).collect())));
        }
        Ok(facts)
    }

    fn threads(&self) -> usize {
        let behind = self.backing.as_ref().map_or(0, |image| image.threads());
        self.source.threads().max(self.data.threads()).max(behind)
    }
}

impl Qcow2 {
    /// Reads what lies at one place: the byte `at` of the disk and what follows.
    fn fetch(&self, place: ClusterPlace, at: u64, part: &mut [u8]) -> Result<(), Error> {
        match place {
            ClusterPlace::Zero => part.fill(0),
            ClusterPlace::Absent => self.read_backing(at, part)?,
            ClusterPlace::At(host) => self.read_data(host, part)?,
            ClusterPlace::Packed { offset, len } => {
                let cluster = self.unpacked.get(offset, || self.unpack(offset, len))?;
                let within = (at % self.header.cluster()) as usize;
                part.copy_from_slice(&cluster[within..within + part.len()]);
            }
        }
        Ok(())
    }

    /// Reads from the file behind; what lies past its end, and everything without one, is zeros.
    fn read_backing(&self, at: u64, part: &mut [u8]) -> Result<(), Error> {
        let Some(image) = &self.backing else {
            part.fill(0);
            return Ok(());
        };
        let there = image.size().saturating_sub(at).min(part.len() as u64) as usize;
        let (there, behind) = part.split_at_mut(there);
        behind.fill(0);
        if there.is_empty() { Ok(()) } else { image.read_at(at, there) }
    }

    /// Reads content; the file may end inside of the last cluster, which is zeros from there.
    fn read_data(&self, host: u64, part: &mut [u8]) -> Result<(), Error> {
        let size = self.data.size();
        if host >= size {
            let what = format!("it lies past the end of the file ({size} bytes)");
            return Err(self.subject.damaged(format!("cluster at byte {host}"), what));
        }
        let there = (size - host).min(part.len() as u64) as usize;
        let (there, behind) = part.split_at_mut(there);
        behind.fill(0);
        source::read(&*self.data, host, there)
    }

    /// A compressed cluster.
    fn unpack(&self, offset: u64, len: usize) -> Result<Arc<Vec<u8>>, Error> {
        let place = || format!("compressed cluster at byte {offset}");
        if offset >= self.source.size() {
            let what = format!("it lies past the end of the file ({} bytes)", self.source.size());
            return Err(self.subject.damaged(place(), what));
        }
        // Its length is in sectors, and the last one may not be there.
        let packed = source::read_some(&*self.source, offset, len)?;
        let wanted = self.header.cluster() as usize;
        let unpacked = match self.header.compression {
            Compression::Deflate => crate::packed::inflate(&packed, wanted),
            Compression::Zstd => crate::packed::unzstd(&packed, wanted),
        };
        let unpacked = unpacked.map_err(|what| self.subject.damaged(place(), what))?;
        Ok(Arc::new(unpacked))
    }
}
