//! A running 64-bit hash of events: two runs of a simulation are the same run exactly if their
//! hashes are equal.

/// A running hash over a sequence of 64-bit values. Order matters. Not cryptographic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHash(u64);

impl Default for EventHash {
    fn default() -> Self {
        EventHash(0x9e37_79b9_7f4a_7c15)
    }
}

impl EventHash {
    /// The hash of the empty sequence.
    pub fn new() -> EventHash {
        EventHash::default()
    }

    /// Adds `value` to the sequence.
    #[inline]
    pub fn update(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 = (mixed ^ (mixed >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(29);
    }

    /// The hash of everything added so far.
    pub fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 33)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> u64 {
        let mut hash = EventHash::new();
        values.iter().for_each(|&v| hash.update(v));
        hash.finish()
    }

    #[test]
    fn order_and_count_matter() {
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        assert_ne!(of(&[]), of(&[0]));
        assert_eq!(of(&[7, 8, 9]), of(&[7, 8, 9]));
    }
}
