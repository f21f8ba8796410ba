//! VDI, dynamic and static: read.
//!
//! Source: the tutorial "All about VDIs" of the VirtualBox forum for the fields of the header, and
//! images that `qemu-img` makes.

use std::sync::Arc;

use crate::Error;
use crate::bytes::{le32, le64};
use crate::chain::Chain;
use crate::error::Subject;
use crate::image::{Fact, Image};
use crate::kind::Format;
use crate::source::{self, Source};

/// The block is nowhere and reads as zeros.
const FREE: u32 = u32::MAX;
/// The block is known to be zeros.
const ZERO: u32 = u32::MAX - 1;

struct Vdi {
    subject: Subject,
    source: Arc<dyn Source>,
    size: u64,
    block: u64,
    /// First byte of the blocks, and bytes before each one's content.
    data: u64,
    extra: u64,
    map: Vec<u32>,
    fixed: bool,
}

/// Opens an image.
pub(crate) fn open(
    source: Arc<dyn Source>,
    chain: &mut Chain<'_>,
) -> Result<Arc<dyn Image>, Error> {
    let subject = Subject { name: source.name().to_owned(), format: "VDI" };
    let header = source::read_some(&*source, 0, 512)?;
    let bad = |what: String| subject.damaged("header", what);
    if header.len() < 512 || le32(&header, 64) != 0xbeda_107f {
        return Err(bad(format!("no VDI header ({} bytes)", header.len())));
    }
    let version = le32(&header, 68);
    if version >> 16 != 1 {
        return Err(
            subject.unsupported(format!("version {}.{}", version >> 16, version & 0xffff), "")
        );
    }
    let kind = le32(&header, 76);
    if !(1..=2).contains(&kind) {
        let what = format!("an image of kind {kind}, which depends on a parent");
        return Err(subject.unsupported(what, "merge it: VBoxManage clonemedium IMAGE new.vdi"));
    }
    let (map_at, data) = (u64::from(le32(&header, 340)), u64::from(le32(&header, 344)));
    let (size, block) = (le64(&header, 368), u64::from(le32(&header, 376)));
    let (extra, count) = (u64::from(le32(&header, 380)), le32(&header, 384));
    if !block.is_power_of_two() || !(512..=256 << 20).contains(&block) {
        return Err(bad(format!("blocks of {block} bytes")));
    }
    if size.div_ceil(block) > count.into() {
        return Err(bad(format!("{count} blocks of {block} bytes for a disk of {size} bytes")));
    }
    let bytes = u64::from(count) * 4;
    if map_at + bytes > source.size() {
        let what = format!("{bytes} bytes at byte {map_at}, the file has {}", source.size());
        return Err(subject.damaged("table of blocks", what));
    }
    chain.take(&subject, "table of blocks", bytes)?;
    let map = source::read_some(&*source, map_at, bytes as usize)?;
    let map = map.chunks_exact(4).map(|entry| le32(entry, 0)).collect();
    Ok(Arc::new(Vdi { subject, source, size, block, data, extra, map, fixed: kind == 2 }))
}

impl Image for Vdi {
    fn format(&self) -> &'static str {
        Format::Vdi.name()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (index, within) = (at / self.block, at % self.block);
            let len = ((self.block - within) as usize).min(buf.len() - done);
            let part = &mut buf[done..done + len];
            match self.map.get(index as usize).copied().unwrap_or(FREE) {
                FREE | ZERO => part.fill(0),
                entry => {
                    let start = self.data + u64::from(entry) * (self.block + self.extra);
                    let from = start + self.extra + within;
                    if from + len as u64 > self.source.size() {
                        let what = format!(
                            "block {entry} of the file, which has {} bytes",
                            self.source.size()
                        );
                        return Err(self
                            .subject
                            .damaged(format!("table of blocks, {index}"), what));
                    }
                    source::read(&*self.source, from, part)?;
                }
            }
            done += len;
        }
        Ok(())
    }

    fn facts(&self) -> Result<Vec<(&'static str, Fact)>, Error> {
        let used = self.map.iter().filter(|&&entry| entry < ZERO).count() as u64;
        Ok(vec![
            ("kind", if self.fixed { "static" } else { "dynamic" }.into()),
            ("cluster_size", self.block.into()),
            ("clusters", (self.map.len() as u64).into()),
            ("clusters_used", used.into()),
        ])
    }

    fn threads(&self) -> usize {
        self.source.threads()
    }
}
