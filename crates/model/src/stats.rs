//! Counters of a model.

use base::Nanos;

/// Counters of a modelled device since it was made. What a kind of device does not have stays zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelStats {
    /// Commands that came.
    pub commands: u64,
    /// Pieces of memory that they moved.
    pub segments: u64,
    /// Commands that the members of a stripe got, after cutting and joining.
    pub member_commands: u64,
    /// Time in which the medium (the back end of an array) did something, summed over its parallel
    /// parts.
    pub media_busy: Nanos,
    /// The part of it that wrote out what a cache held.
    pub destage_busy: Nanos,
    /// Movements of an arm, or accesses of the back end that continue nothing.
    pub seeks: u64,
    /// Time of those movements, and of waiting for the medium to turn.
    pub positioning: Nanos,
    /// Reads that a cache answered.
    pub read_hits: u64,
    /// Reads that needed the medium.
    pub read_misses: u64,
    /// Bytes read ahead of any request.
    pub prefetched_bytes: u64,
    /// Reads that what was read ahead answered at once or while it came.
    pub prefetch_hits: u64,
    /// Writes that a cache took.
    pub write_hits: u64,
    /// Writes that waited because the write cache was full.
    pub write_stalls: u64,
    /// Bytes written out of the write cache.
    pub destaged_bytes: u64,
    /// Bytes that wait in the write cache now.
    pub dirty_bytes: u64,
    /// Flushes carried out.
    pub flushes: u64,
}

impl ModelStats {
    /// Adds the counters of a part.
    pub(crate) fn add(&mut self, part: &ModelStats) {
        let counts = [
            (&mut self.commands, part.commands),
            (&mut self.segments, part.segments),
            (&mut self.member_commands, part.member_commands),
            (&mut self.media_busy.0, part.media_busy.0),
            (&mut self.destage_busy.0, part.destage_busy.0),
            (&mut self.seeks, part.seeks),
            (&mut self.positioning.0, part.positioning.0),
            (&mut self.read_hits, part.read_hits),
            (&mut self.read_misses, part.read_misses),
            (&mut self.prefetched_bytes, part.prefetched_bytes),
            (&mut self.prefetch_hits, part.prefetch_hits),
            (&mut self.write_hits, part.write_hits),
            (&mut self.write_stalls, part.write_stalls),
            (&mut self.destaged_bytes, part.destaged_bytes),
            (&mut self.dirty_bytes, part.dirty_bytes),
            (&mut self.flushes, part.flushes),
        ];
        counts.into_iter().for_each(|(sum, part)| *sum += part);
    }
}
