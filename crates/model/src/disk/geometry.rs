//! Where a sector lies on a disk, and when it passes under the head.
//!
//! Sectors are numbered along a track, then over the heads of a cylinder, then inwards. Zones are
//! rings of cylinders with one number of sectors per track. The first sector of each track is
//! turned against that of the track before (*skew*), so that a reader who goes on meets it in time
//! after switching the head or moving the arm by one.

use super::DiskParams;
use base::Nanos;

/// What rounding may lose on the way round; a sector that begins so soon ago begins now.
const SLOP: u64 = 2_000;

struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    sectors_per_track: u64,
}

/// A sector's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectorPlace {
    pub cylinder: u64,
    pub head: u64,
    /// Sectors from here to the end of the track.
    pub left: u64,
    /// When in each turn it begins, in ns.
    pub angle: u64,
    /// Sectors of its track.
    pub per_track: u64,
}

pub(super) struct Geometry {
    zones: Vec<Zone>,
    heads: u64,
    cylinders: u64,
    /// One turn in ns.
    turn: u64,
    head_skew: u64,
    cylinder_skew: u64,
    head_switch: u64,
    track_seek: u64,
    /// Over a third of the stroke.
    third_seek: u64,
    full_seek: u64,
    write_settle: u64,
}

impl Geometry {
    pub fn new(params: &DiskParams) -> Geometry {
        let turn = 60_000_000_000 / params.rpm;
        let (outer, inner) = (params.outer_track, params.inner_track);
        let mut zones = Vec::new();
        let mut first_sector = 0;
        for index in 0..params.zones {
            let begin = params.cylinders * index / params.zones;
            let end = params.cylinders * (index + 1) / params.zones;
            let steps = params.zones.saturating_sub(1).max(1);
            let sectors_per_track = outer - (outer - inner) * index / steps;
            zones.push(Zone { first_sector, first_cylinder: begin, sectors_per_track });
            first_sector += (end - begin) * params.heads * sectors_per_track;
        }
        // An end that no sector reaches.
        let sectors_per_track = inner;
        zones.push(Zone { first_sector, first_cylinder: params.cylinders, sectors_per_track });
        let margin = turn / 100;
        Geometry {
            zones,
            heads: params.heads,
            cylinders: params.cylinders,
            turn,
            head_skew: (params.head_switch.0 + margin) % turn,
            cylinder_skew: (params.track_seek.0 + margin) % turn,
            head_switch: params.head_switch.0,
            track_seek: params.track_seek.0,
            third_seek: third_seek(params),
            full_seek: params.full_seek.0,
            write_settle: params.write_settle.0,
        }
    }

    /// Sectors of the whole disk.
    pub fn capacity(&self) -> u64 {
        self.zones.last().map_or(0, |end| end.first_sector)
    }

    pub fn locate(&self, sector: u64) -> SectorPlace {
        let at = self.zones.partition_point(|zone| zone.first_sector <= sector) - 1;
        let zone = &self.zones[at.min(self.zones.len() - 2)];
        let per_track = zone.sectors_per_track;
        let within = sector - zone.first_sector;
        let (track, index) = (within / per_track, within % per_track);
        let (cylinder, head) = (zone.first_cylinder + track / self.heads, track % self.heads);
        let around = (self.heads - 1) * self.head_skew + self.cylinder_skew;
        let skew = cylinder * around + head * self.head_skew;
        let angle = (skew + index * self.turn / per_track) % self.turn;
        SectorPlace { cylinder, head, left: per_track - index, angle, per_track }
    }

    /// The arm's way over `distance` cylinders: from one track to the next and up to a third of the
    /// stroke with the root of the distance (the arm speeds up and slows down), further on
    /// linearly (it coasts).
    pub fn seek(&self, distance: u64) -> u64 {
        let third = (self.cylinders / 3).max(2);
        if distance == 0 {
            return 0;
        }
        if distance <= third {
            let part = (distance - 1) as f64 / (third - 1) as f64;
            let span = self.third_seek.saturating_sub(self.track_seek) as f64;
            return self.track_seek + (span * part.sqrt()) as u64;
        }
        let part = (distance - third) as f64 / (self.cylinders - third).max(1) as f64;
        let span = self.full_seek.saturating_sub(self.third_seek) as f64;
        self.third_seek + (span * part) as u64
    }

    /// Time to bring the arm and the head from one track to another.
    pub fn movement(&self, from: (u64, u64), to: &SectorPlace, write: bool) -> u64 {
        let settle = if write { self.write_settle } else { 0 };
        match from.0.abs_diff(to.cylinder) {
            0 if from.1 == to.head => 0,
            0 => self.head_switch + settle,
            distance => self.seek(distance) + settle,
        }
    }

    /// How long the sector at `angle` lets itself be waited for at `time`.
    pub fn wait(&self, angle: u64, time: u64) -> u64 {
        let wait = (angle + self.turn - time % self.turn) % self.turn;
        if self.turn - wait < SLOP { 0 } else { wait }
    }

    /// When a transfer of `sector..end` is done whose first sector begins to pass at `time`.
    pub fn pass(&self, time: Nanos, sector: u64, end: u64) -> Nanos {
        let mut now = time.0;
        let mut at = sector;
        let mut place = self.locate(at);
        loop {
            let count = place.left.min(end - at);
            now += count * self.turn / place.per_track;
            at += count;
            if at >= end {
                return Nanos(now);
            }
            now = self.next_track(now, &mut place, at);
        }
    }

    /// How far a reader gets until `until` whose sector `sector` begins to pass at `time`, but not
    /// beyond `end`: the sector, and when that one begins to pass.
    pub fn reach(&self, time: Nanos, sector: u64, until: Nanos, end: u64) -> (Nanos, u64) {
        let (mut now, mut at) = (time.0, sector);
        let mut place = self.locate(at.min(self.capacity() - 1));
        while at < end && now < until.0 {
            let count = place.left.min(end - at);
            let whole = count * self.turn / place.per_track;
            if now + whole > until.0 {
                let part = ((until.0 - now) * place.per_track / self.turn).min(count);
                now += part * self.turn / place.per_track;
                return (Nanos(now), at + part);
            }
            now += whole;
            at += count;
            if at < self.capacity() && place.left == count {
                now = self.next_track(now, &mut place, at);
            } else {
                place.left -= count;
            }
        }
        (Nanos(now), at)
    }

    /// Goes from the end of a track to sector `at`, the first of the next.
    fn next_track(&self, now: u64, place: &mut SectorPlace, at: u64) -> u64 {
        let next = self.locate(at);
        let switch =
            if next.cylinder == place.cylinder { self.head_switch } else { self.track_seek };
        *place = next;
        let now = now + switch;
        now + self.wait(next.angle, now)
    }
}

/// The seek over a third of the stroke with which the mean over all pairs of tracks is what the
/// profile says. With s for one track, f for the full stroke and x for a third, that mean is
/// s / 5 + 88 x / 135 + 4 f / 27: the integral of the curve over distances, of which u strokes has
/// the density 2 (1 - u).
fn third_seek(params: &DiskParams) -> u64 {
    let (single, full) = (params.track_seek.0 as f64, params.full_seek.0 as f64);
    let rest = params.average_seek.0 as f64 - single / 5.0 - full * 4.0 / 27.0;
    ((rest * 135.0 / 88.0).max(single).min(full)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> DiskParams {
        DiskParams { heads: 2, cylinders: 9000, zones: 9, ..DiskParams::example() }
    }

    #[test]
    fn sectors_lie_along_tracks_heads_and_cylinders() {
        let geometry = Geometry::new(&params());
        let outer = params().outer_track;
        let place = |sector| {
            let place = geometry.locate(sector);
            (place.cylinder, place.head, place.left)
        };
        assert_eq!(place(0), (0, 0, outer));
        assert_eq!(place(outer - 1), (0, 0, 1));
        assert_eq!(place(outer), (0, 1, outer));
        assert_eq!(place(2 * outer), (1, 0, outer));
        let last = geometry.locate(geometry.capacity() - 1);
        assert_eq!((last.cylinder, last.left), (8999, 1));
        assert_eq!(last.per_track, params().inner_track, "the innermost zone");
    }

    #[test]
    fn the_seek_curve_goes_through_its_three_points() {
        let geometry = Geometry::new(&params());
        let (single, third) = (params().track_seek.0, third_seek(&params()));
        assert_eq!((geometry.seek(0), geometry.seek(1)), (0, single));
        assert_eq!(geometry.seek(3000), third);
        let pairs = (1..9000u64).map(|d| geometry.seek(d) as f64 * (9000 - d) as f64);
        let mean = pairs.sum::<f64>() / (9000.0 * 8999.0 / 2.0);
        assert!((mean / params().average_seek.0 as f64 - 1.0).abs() < 0.001, "{mean} on average");
        assert_eq!(geometry.seek(9000), params().full_seek.0);
        let rising = (0..9000).all(|d| geometry.seek(d) <= geometry.seek(d + 1));
        assert!(rising, "further is never faster");
        let quarter = geometry.seek(751) - single;
        assert!(quarter.abs_diff((third - single) / 2) < 2000, "the root of a quarter");
    }

    /// Goal: a reader who goes on needs the skew at each track and no turn; `reach` agrees with
    /// `pass`.
    #[test]
    fn going_on_needs_the_skew_and_no_turn() {
        let geometry = Geometry::new(&params());
        let turn = geometry.turn;
        let per_track = params().outer_track;
        let start = Nanos(geometry.locate(0).angle);
        let one = geometry.pass(start, 0, per_track).0 - start.0;
        assert!(turn - one < 10, "one track is one turn");
        let two = geometry.pass(start, 0, 2 * per_track).0 - start.0;
        assert!(two.abs_diff(2 * turn + geometry.head_skew) < 10);
        let three = geometry.pass(start, 0, 3 * per_track).0 - start.0;
        assert!(three.abs_diff(3 * turn + geometry.head_skew + geometry.cylinder_skew) < 20);
        for until in (0..3 * turn).step_by(77_777) {
            let (when, sector) = geometry.reach(start, 0, start + Nanos(until), u64::MAX);
            assert!(when <= start + Nanos(until) + Nanos(turn), "a sector or a skew ahead at most");
            if sector > 0 {
                let passed = geometry.pass(start, 0, sector);
                assert!(passed <= start + Nanos(until) + Nanos(SLOP), "{sector} by {until}");
            }
            let next = geometry.pass(start, 0, sector + 2);
            assert!(next >= start + Nanos(until), "{sector} by {until}: it got further");
        }
    }
}
