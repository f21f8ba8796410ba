//! One file as bytes, beside a file system's: random operations on both, and comparisons.

use base::{Errno, Ino, Rng};
use rt::Cx;
use vfs::{FallocMode, FileSystem, SeekWhence, SetAttr};

/// One file as bytes, beside the file system's.
pub struct Twin {
    /// The file.
    pub ino: Ino,
    /// What it must hold.
    pub bytes: Vec<u8>,
}

impl Twin {
    /// The file has the size and the bytes; `what` was done last.
    ///
    /// # Panics
    /// Where it has not.
    pub fn check(&self, cx: &mut Cx, fs: &dyn FileSystem, what: &str) {
        let attr = fs.getattr(cx, self.ino).expect("getattr");
        assert_eq!(attr.size, self.bytes.len() as u64, "size after {what}");
        let mut buf = vec![0xee; self.bytes.len() + 100];
        assert_eq!(fs.read(cx, self.ino, 0, &mut buf), Ok(self.bytes.len()), "after {what}");
        if buf[..self.bytes.len()] != self.bytes[..] {
            let at = (0..self.bytes.len()).find(|&at| buf[at] != self.bytes[at]);
            let at = at.expect("they differ");
            panic!("after {what}: byte {at} is {:#x}, not {:#x}", buf[at], self.bytes[at]);
        }
    }

    /// Writes to both.
    ///
    /// # Panics
    /// Where the file system does not take all of it.
    pub fn write(&mut self, cx: &mut Cx, fs: &dyn FileSystem, off: usize, data: &[u8]) {
        assert_eq!(fs.write(cx, self.ino, off as u64, data), Ok(data.len()));
        if self.bytes.len() < off + data.len() {
            self.bytes.resize(off + data.len(), 0);
        }
        self.bytes[off..off + data.len()].copy_from_slice(data);
    }

    /// Allocates, punches or zeroes in both, if the file system can.
    ///
    /// # Panics
    /// At an error but `EOPNOTSUPP`.
    pub fn fallocate(
        &mut self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        mode: FallocMode,
        off: usize,
        len: usize,
    ) {
        match fs.fallocate(cx, self.ino, mode, off as u64, len as u64) {
            Ok(()) => {}
            Err(Errno::EOPNOTSUPP) => return,
            Err(errno) => panic!("{mode:?}: {errno}"),
        }
        let end = off + len;
        let keep = match mode {
            FallocMode::Allocate { keep_size } | FallocMode::ZeroRange { keep_size } => keep_size,
            FallocMode::PunchHole => true,
            FallocMode::CollapseRange | FallocMode::InsertRange => unreachable!("not tried here"),
        };
        if !keep && end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        let end = end.min(self.bytes.len());
        if !matches!(mode, FallocMode::Allocate { .. }) && off < end {
            self.bytes[off..end].fill(0);
        }
    }

    /// One random operation; its name.
    ///
    /// # Panics
    /// At an error, and at an answer that is not the right one.
    pub fn step(&mut self, cx: &mut Cx, fs: &dyn FileSystem, rng: &mut Rng) -> String {
        let off = (rng.below(1200) * rng.below(1200)) as usize;
        let len = 1 + (rng.below(300) * rng.below(300)) as usize;
        let fill = rng.next_u32() as u8;
        match rng.below(12) {
            0..=4 => {
                let data: Vec<u8> = (0..len).map(|at| fill.wrapping_add((at / 64) as u8)).collect();
                self.write(cx, fs, off, &data);
                format!("write {off}+{len}")
            }
            5 => {
                let set = SetAttr { size: Some(off as u64), ..SetAttr::default() };
                fs.setattr(cx, self.ino, &set).expect("truncate");
                self.bytes.resize(off, 0);
                format!("truncate to {off}")
            }
            6 => {
                self.fallocate(cx, fs, FallocMode::PunchHole, off, len);
                format!("punch {off}+{len}")
            }
            7 => {
                let keep_size = rng.chance(0.5);
                self.fallocate(cx, fs, FallocMode::Allocate { keep_size }, off, len);
                format!("allocate {off}+{len} {keep_size}")
            }
            8 => {
                let keep_size = rng.chance(0.5);
                self.fallocate(cx, fs, FallocMode::ZeroRange { keep_size }, off, len);
                format!("zero {off}+{len} {keep_size}")
            }
            9 => {
                fs.fsync(cx, self.ino, rng.chance(0.5)).expect("fsync");
                "fsync".into()
            }
            10 => {
                self.check_seek(cx, fs, off as u64);
                "seek".into()
            }
            _ => {
                let mut buf = vec![0; len];
                let got = fs.read(cx, self.ino, off as u64, &mut buf).expect("read");
                let want = self.bytes.get(off..).map_or(0, |rest| rest.len().min(len));
                assert_eq!(got, want);
                assert!(want == 0 || buf[..got] == self.bytes[off..off + got]);
                format!("read {off}+{len}")
            }
        }
    }

    /// What is called a hole reads as zeroes; data and holes follow each other.
    fn check_seek(&self, cx: &mut Cx, fs: &dyn FileSystem, off: u64) {
        let size = self.bytes.len() as u64;
        let data = fs.seek(cx, self.ino, off, SeekWhence::Data);
        if off >= size {
            assert_eq!(data, Err(Errno::ENXIO));
            return;
        }
        let end = data.unwrap_or(size);
        assert!(self.bytes[off as usize..end as usize].iter().all(|&byte| byte == 0));
        if let Ok(data) = data {
            let hole = fs.seek(cx, self.ino, data, SeekWhence::Hole).expect("there is a hole");
            assert!(hole > data && hole <= size);
        }
        let extents = fs.fiemap(cx, self.ino, 0, size).expect("fiemap");
        assert!(extents.windows(2).all(|two| two[0].offset + two[0].len <= two[1].offset));
    }
}
