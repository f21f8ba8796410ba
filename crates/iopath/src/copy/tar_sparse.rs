//! Sparse members of archives: GNU's old format (type `S`) and the pax formats 0.1 and 1.0.
//!
//! Source: the GNU tar manual, appendix "Storing Sparse Files".

use anyhow::{Context, Result, bail};

use super::tar_sink::BLOCK;

/// Most stretches of data that a member may have.
const STRETCHES_MAX: usize = 1 << 20;

/// Where the stored bytes of a member belong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Map {
    /// Size of the file, bytes.
    pub size: u64,
    /// Offset and length of each stretch of data, rising, not overlapping.
    pub stretches: Vec<(u64, u64)>,
}

impl Map {
    /// Checks that the stretches lie in the file in order and make up what is stored.
    ///
    /// # Errors
    /// Says what does not fit.
    pub fn check(self, stored: u64) -> Result<Map> {
        let (mut end, mut total) = (0u64, 0u64);
        for &(offset, len) in &self.stretches {
            let next = offset.checked_add(len).filter(|&next| next <= self.size);
            if offset < end || next.is_none() {
                bail!("sparse map: {len} bytes at {offset} of a file of {} bytes", self.size);
            }
            (end, total) = (next.unwrap_or(end), total + len);
        }
        if total != stored {
            bail!("sparse map: names {total} bytes, {stored} are stored");
        }
        Ok(self)
    }

    /// The map of a pax 0.1 record: `offset,length,offset,length,..`
    ///
    /// # Errors
    /// Not numbers, or too many.
    pub fn parse_list(list: &str, size: u64) -> Result<Map> {
        let numbers: Result<Vec<u64>, _> = list.split(',').map(str::parse).collect();
        let numbers = numbers.with_context(|| "sparse map: not a number".to_string())?;
        let stretches = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        if numbers.len() % 2 != 0 || numbers.len() > 2 * STRETCHES_MAX {
            bail!("sparse map: {} numbers", numbers.len());
        }
        Ok(Map { size, stretches })
    }

    /// The map at the start of a pax 1.0 member: the count and then the numbers, one per line, in
    /// whole blocks. Returns the bytes that it took, too.
    ///
    /// # Errors
    /// Not numbers, too many, or those of `read`.
    pub fn read_lines(
        size: u64,
        mut read: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<(Map, u64)> {
        let (mut block, mut at, mut taken) = ([0; BLOCK], BLOCK, 0);
        let mut number = || -> Result<u64> {
            let mut value = 0u64;
            loop {
                if at == BLOCK {
                    read(&mut block)?;
                    (at, taken) = (0, taken + BLOCK as u64);
                }
                at += 1;
                value = match block[at - 1] {
                    b'\n' => return Ok(value),
                    digit @ b'0'..=b'9' => {
                        let next = value.checked_mul(10);
                        let next = next.and_then(|n| n.checked_add(u64::from(digit - b'0')));
                        next.context("sparse map: number too large")?
                    }
                    other => bail!("sparse map: byte {other:#x} is no digit"),
                };
            }
        };
        let count = number()?;
        if count > STRETCHES_MAX as u64 {
            bail!("sparse map: {count} stretches are too many");
        }
        let mut stretches = Vec::new();
        for _ in 0..count {
            stretches.push((number()?, number()?));
        }
        Ok((Map { size, stretches }, taken))
    }

    /// Adds the entries of a header or extension block of the old format: pairs of numbers of 12
    /// bytes; one with an empty field ends them.
    ///
    /// # Errors
    /// Not numbers, or too many.
    pub fn add_old(&mut self, fields: &[u8], number: impl Fn(&[u8]) -> Result<u64>) -> Result<()> {
        for pair in fields.chunks_exact(24).take_while(|pair| pair[0] != 0 && pair[12] != 0) {
            self.stretches.push((number(&pair[..12])?, number(&pair[12..])?));
        }
        if self.stretches.len() > STRETCHES_MAX {
            bail!("sparse map: too many stretches");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_and_checked() {
        let map = Map::parse_list("0,10,4096,5", 5000).unwrap();
        assert_eq!(map.stretches, [(0, 10), (4096, 5)]);
        assert!(map.clone().check(15).is_ok());
        assert!(map.clone().check(16).is_err());
        assert!(Map { size: 4100, ..map.clone() }.check(15).is_err());
        assert!(Map::parse_list("1,2,3", 9).is_err() && Map::parse_list("x", 9).is_err());
        assert!(Map::parse_list("10,5,0,5", 20).unwrap().check(10).is_err(), "not rising");
        let mut text = b"2\n0\n10\n4096\n5\n".to_vec();
        text.resize(BLOCK, 0);
        let read = |buf: &mut [u8]| {
            buf.copy_from_slice(&text);
            Ok(())
        };
        assert_eq!(Map::read_lines(5000, read).unwrap(), (map, 512));
        assert!(
            Map::read_lines(1, |buf| {
                buf.fill(b'9');
                Ok(())
            })
            .is_err()
        );
    }
}
