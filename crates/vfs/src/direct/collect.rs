//! From pieces to bios: sections that grow in place, bios that grow while their sections are
//! neighbours, and the moment at which a mark sends one off.
//!
//! A piece that continues the *deferred section* (the same page, the next bytes, the next sectors)
//! grows it; any other sends it into the bio and takes its place. A bio goes off when a section
//! does not continue it, when it is full, and when the rule for boundaries says so. The order of
//! these three is what the rules differ in, so it is written out here step by step.

use std::sync::Arc;

use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{Bio, BioFlags, Op, Plug, Queue, Segment, Segments};
use rt::Cx;

use super::Boundary;
use super::ends::{Ends, Spans};
use super::memory::Walk;

/// Bytes of a call at one place of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    /// Where they lie in the file.
    pub file: u64,
    /// Where they lie in the memory; zeros where there is none.
    pub memory: Option<u64>,
    /// How many.
    pub len: u32,
    /// The first sector.
    pub sector: Sector,
}

impl Section {
    fn end(&self) -> Sector {
        self.sector + u64::from(self.len) / SECTOR_SIZE
    }
}

struct Building {
    sector: Sector,
    end: Sector,
    bytes: u64,
    segs: Segments,
    spans: Spans,
}

/// Builds the bios of one call and sends them off.
pub(super) struct Collector<'a> {
    queue: &'a Arc<Queue>,
    op: Op,
    rule: Boundary,
    memory: Walk<'a>,
    zeros: Option<Page>,
    section: Option<Section>,
    bio: Option<Building>,
    /// The mark of the piece in hand, as long as nothing has used it up.
    boundary: bool,
    plug: Option<Plug>,
    pub ends: Ends,
}

impl<'a> Collector<'a> {
    pub fn new(queue: &'a Arc<Queue>, op: Op, rule: Boundary, memory: Walk<'a>) -> Collector<'a> {
        Collector {
            queue,
            op,
            rule,
            memory,
            zeros: None,
            section: None,
            bio: None,
            boundary: false,
            plug: rule.is_modern().then(Plug::new),
            ends: Ends::default(),
        }
    }

    pub fn memory(&self) -> &Walk<'a> {
        &self.memory
    }

    /// Takes one piece; `mark` where it carries its run's mark. May park.
    pub fn add(&mut self, cx: &mut Cx, piece: Section, mark: bool) {
        let adds_first = self.rule.adds_first();
        self.boundary = mark && !adds_first;
        let grown = self.grow(&piece);
        if !grown {
            self.send(cx);
            self.section = Some(piece);
        }
        if mark && adds_first {
            // The second patch: the flag is raised for this section alone.
            self.boundary = true;
            self.send(cx);
            if self.rule == Boundary::AfterAdd {
                self.submit(cx);
            }
        } else if mark && grown {
            self.send(cx);
        }
    }

    /// Lets `piece` continue the deferred section where it does.
    fn grow(&mut self, piece: &Section) -> bool {
        let (Some(section), Some(at)) = (&mut self.section, piece.memory) else { return false };
        let Some(from) = section.memory else { return false };
        let continues = from + u64::from(section.len) == at
            && self.memory.page(from) == self.memory.page(at)
            && section.end() == piece.sector;
        if continues {
            section.len += piece.len;
        }
        continues
    }

    /// Puts the deferred section into a bio.
    fn send(&mut self, cx: &mut Cx) {
        let Some(section) = self.section.take() else { return };
        if self.bio.as_ref().is_some_and(|bio| bio.end != section.sector) {
            self.submit(cx);
        }
        if self.boundary && !self.rule.adds_first() {
            self.submit(cx);
        }
        match self.rule.is_modern() {
            true => self.append_cut(cx, section),
            false => self.append(cx, section),
        }
        if self.boundary && self.rule == Boundary::LastPiece {
            self.submit(cx);
        }
    }

    /// Adds a section, to a new bio where the current one has no room for all of it.
    fn append(&mut self, cx: &mut Cx, section: Section) {
        let info = self.queue.info();
        let (bytes_max, segments_max) = (info.max_bytes, info.max_segments.max(1));
        let full = self.bio.as_ref().is_some_and(|bio| {
            bio.bytes + u64::from(section.len) > u64::from(bytes_max)
                || bio.segs.len() >= usize::from(segments_max)
        });
        if full {
            self.submit(cx);
        }
        self.push(section);
    }

    /// Adds a section, cut where a bio is full and where the device would cut.
    fn append_cut(&mut self, cx: &mut Cx, mut rest: Section) {
        let info = self.queue.info();
        let (bytes_max, chunk) = (u64::from(info.max_bytes), u64::from(info.chunk));
        let segments_max = usize::from(info.max_segments.max(1));
        while rest.len > 0 {
            let used = self.bio.as_ref().map_or(0, |bio| bio.bytes);
            let mut room = bytes_max - used;
            if chunk > 0 {
                room = room.min(chunk - rest.sector.bytes() % chunk);
            }
            let len = room.min(u64::from(rest.len)) as u32;
            self.push(Section { len, ..rest });
            rest.file += u64::from(len);
            rest.memory = rest.memory.map(|at| at + u64::from(len));
            rest.sector = rest.sector + u64::from(len) / SECTOR_SIZE;
            rest.len -= len;
            let full = self.bio.as_ref().is_some_and(|bio| bio.segs.len() >= segments_max);
            if full || u64::from(len) == room {
                self.submit(cx);
            }
        }
    }

    fn push(&mut self, section: Section) {
        let segment = match section.memory {
            Some(at) => self.memory.segment(at, section.len),
            None => self.zeros(section.len),
        };
        if self.bio.is_none() && !self.rule.adds_first() {
            self.boundary = false; // Until the second patch a new bio forgot the mark.
        }
        let bio = self.bio.get_or_insert_with(|| Building {
            sector: section.sector,
            end: section.sector,
            bytes: 0,
            segs: Segments::new(),
            spans: Spans::new(),
        });
        bio.end = section.end();
        bio.bytes += u64::from(section.len);
        bio.segs.push(segment);
        bio.spans.push((section.file, section.len));
    }

    fn zeros(&mut self, len: u32) -> Segment {
        let page = match &self.zeros {
            Some(page) if page.len() >= len as usize => page.clone(),
            _ => self.zeros.insert(Page::zeroed(len as usize)).clone(),
        };
        Segment { page, offset: 0, len }
    }

    /// Sends the bio off. That uses the mark up.
    fn submit(&mut self, cx: &mut Cx) {
        let Some(bio) = self.bio.take() else { return };
        self.boundary = false;
        let end = self.ends.end(bio.sector.0, bio.spans, self.op == Op::Read);
        let bio = Bio::new(self.op, bio.sector, bio.segs, BioFlags::SYNC, end);
        match &mut self.plug {
            Some(plug) => self.queue.submit_plugged(cx, plug, bio),
            None => self.queue.submit(cx, bio),
        }
    }

    /// Sends everything off: the task is about to wait. May park.
    pub fn flush(&mut self, cx: &mut Cx) {
        self.send(cx);
        self.submit(cx);
        if let Some(plug) = &mut self.plug {
            plug.flush(cx);
        }
    }
}
