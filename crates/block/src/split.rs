//! Splits a bio that is larger than one request may be, and joins the results of its parts.

use crate::request::Limits;
use crate::{Bio, BioResult, DeviceError, EndIo, Op, Segment, Segments};
use base::unit::SECTOR_SIZE;
use rt::SpinLock;
use std::sync::Arc;

/// Where the memory of a part belongs in the whole.
struct PartPlace {
    /// Index of the segment in the whole bio.
    index: usize,
    /// First byte inside that segment; the part has a page of its own where it is cut.
    offset: u32,
    cut: bool,
}

/// What is known of the whole.
struct Whole {
    segs: Vec<Option<Segment>>,
    result: Result<(), DeviceError>,
    left: usize,
    end: Option<EndIo>,
}

/// True where `bio` needs cutting.
pub(crate) fn is_too_large(bio: &Bio, limits: Limits) -> bool {
    bio.op.has_data() && (bio.bytes() > limits.bytes || bio.segs.len() > limits.segments as usize)
}

/// Cuts `bio` into parts within the limits, in the order of the sectors. The end of `bio` is called
/// when the last part is done, with all segments in their order and the first error in the order
/// of completion. Every part keeps PREFLUSH, since none may pass the flush.
pub(crate) fn split(mut bio: Bio, limits: Limits) -> Vec<Bio> {
    let segs = std::mem::take(&mut bio.segs);
    let pieces = cut_segments(&segs, limits.bytes as u32);
    let groups = group(&pieces, limits);
    let whole = Arc::new(SpinLock::named(
        "split bio",
        Whole {
            segs: vec![None; segs.len()],
            result: Ok(()),
            left: groups.len(),
            end: Some(bio.end),
        },
    ));
    let mut sector = bio.sector;
    let mut parts = Vec::with_capacity(groups.len());
    {
        // Segments that are cut wait in the whole; the others travel with their part.
        let mut state = whole.lock_irq();
        for piece in pieces.iter().filter(|piece| piece.1.cut) {
            state.segs[piece.1.index] = Some(segs[piece.1.index].clone());
        }
    }
    drop(segs);
    let mut pieces = pieces.into_iter();
    for count in groups {
        let (memory, places): (Segments, Vec<PartPlace>) = pieces
            .by_ref()
            .take(count)
            .map(|(seg, place)| {
                if place.cut && bio.op == Op::Read { (own_page(&seg), place) } else { (seg, place) }
            })
            .unzip();
        let whole = whole.clone();
        let end: EndIo = Box::new(move |part: BioResult| join(&whole, part, places));
        let mut part = Bio::new(bio.op, sector, memory, bio.flags, end);
        (part.ioc, part.ioprio, part.issuer) = (bio.ioc, bio.ioprio, bio.issuer);
        part.cgroup = bio.cgroup;
        sector = part.end_sector();
        parts.push(part);
    }
    parts
}

/// A page of its own for a part of a page that several parts would read into.
fn own_page(seg: &Segment) -> Segment {
    Segment::whole(base::Page::zeroed(seg.len as usize))
}

/// Cuts segments that are larger than a request may be.
fn cut_segments(segs: &Segments, max_bytes: u32) -> Vec<(Segment, PartPlace)> {
    let max_bytes = (max_bytes as u64 / SECTOR_SIZE * SECTOR_SIZE) as u32;
    let mut pieces = Vec::with_capacity(segs.len());
    for (index, seg) in segs.iter().enumerate() {
        let cut = seg.len > max_bytes;
        let mut offset = 0;
        while offset < seg.len {
            let len = max_bytes.min(seg.len - offset);
            let piece = Segment { page: seg.page.clone(), offset: seg.offset + offset, len };
            pieces.push((piece, PartPlace { index, offset, cut }));
            offset += len;
        }
    }
    pieces
}

/// How many pieces go into each part.
fn group(pieces: &[(Segment, PartPlace)], limits: Limits) -> Vec<usize> {
    let mut groups = Vec::new();
    let (mut count, mut bytes) = (0usize, 0u64);
    for (seg, _) in pieces {
        if count > 0 && (bytes + seg.len as u64 > limits.bytes || count == limits.segments as usize)
        {
            groups.push(count);
            (count, bytes) = (0, 0);
        }
        count += 1;
        bytes += seg.len as u64;
    }
    groups.push(count);
    groups
}

/// Takes in the end of one part; ends the whole with the last one.
fn join(whole: &SpinLock<Whole>, part: BioResult, places: Vec<PartPlace>) {
    let mut state = whole.lock_irq();
    for (seg, place) in part.segs.into_iter().zip(places) {
        if !place.cut {
            state.segs[place.index] = Some(seg);
        } else if let Some(target) = &mut state.segs[place.index]
            && !seg.page.ptr_eq(&target.page)
        {
            let from = place.offset as usize;
            target.bytes_mut()[from..from + seg.len as usize].copy_from_slice(seg.bytes());
        }
    }
    if let Err(error) = part.result
        && state.result.is_ok()
    {
        state.result = Err(error);
    }
    state.left -= 1;
    if state.left > 0 {
        return;
    }
    let end = state.end.take().expect("the last part ends the bio once");
    let segs = std::mem::take(&mut state.segs).into_iter().flatten().collect();
    let result = std::mem::replace(&mut state.result, Ok(()));
    drop(state);
    end(BioResult { segs, result });
}
