//! Direct and buffered access to one file, mixed by tasks side by side, against an array.

use std::sync::Arc;

use base::{Ino, Rng};
use rt::Cx;
use vfs::{FallocMode, FileSystem, SetAttr};

/// Bytes from one task's part of the file to the next one's.
const STRIDE: u64 = 400_000 / 512 * 512;
/// Bytes that a task works on.
const PART: usize = 390_000 / 512 * 512;

/// Three tasks, each with a part of the file for its own, mix direct and buffered reads and writes
/// with holes; where the seed is a multiple of four one task alone also grows and shrinks the file.
/// Returns what each part must hold.
pub fn run(cx: &mut Cx, fs: &Arc<dyn FileSystem>, file: Ino, seed: u64) -> Vec<Vec<u8>> {
    let alone = seed.is_multiple_of(4);
    let tasks: Vec<_> = (0..3u64)
        .map(|number| {
            let fs = fs.clone();
            cx.spawn(&format!("task{number}"), move |cx| match alone && number > 0 {
                true => Vec::new(),
                false => mix(cx, &*fs, file, Rng::new(seed, number), number * STRIDE, alone),
            })
        })
        .collect();
    tasks.into_iter().map(|task| task.join(cx)).collect()
}

/// Reads the parts again, after a remount say.
pub fn verify(cx: &mut Cx, fs: &dyn FileSystem, file: Ino, parts: &[Vec<u8>], what: &str) {
    for (number, part) in parts.iter().enumerate() {
        let mut bytes = vec![0; part.len()];
        let count = fs.read(cx, file, number as u64 * STRIDE, &mut bytes).expect("read");
        assert!(bytes[..count] == part[..count], "{what}: part {number}");
        assert!(part[count..].iter().all(|&byte| byte == 0), "{what}: the end");
    }
}

/// Random work behind `base`; returns what must be there.
fn mix(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    file: Ino,
    mut rng: Rng,
    base: u64,
    alone: bool,
) -> Vec<u8> {
    let mut model = vec![0u8; PART];
    let mut size = 0;
    for step in 0..60u32 {
        let direct = rng.chance(0.7);
        let mut at = rng.below(model.len() as u64 - 80_000) as usize;
        let mut len = 1 + rng.below(80_000) as usize;
        if direct {
            (at, len) = (at / 512 * 512, len.next_multiple_of(512).min(79_872));
        }
        let place = base + at as u64;
        match rng.below(10) {
            0..=4 => {
                let data = vec![step as u8 | 1; len];
                let written = match direct {
                    true => fs.write_direct(cx, file, place, &data),
                    false => fs.write(cx, file, place, &data),
                };
                assert_eq!(written, Ok(len));
                model[at..at + len].copy_from_slice(&data);
                size = size.max(at + len);
            }
            5..=7 => {
                let mut bytes = vec![0; len];
                let read = match direct {
                    true => fs.read_direct(cx, file, place, &mut bytes),
                    false => fs.read(cx, file, place, &mut bytes),
                };
                let read = read.expect("reads");
                assert!(bytes[..read] == model[at..at + read], "step {step}: at {at}, {direct}");
                assert!(read == len || at + read >= size, "step {step}: {read} of {len}");
            }
            8 if alone => {
                let set = SetAttr { size: Some(place), ..SetAttr::default() };
                fs.setattr(cx, file, &set).expect("truncate");
                model[at..].fill(0);
                size = at;
            }
            _ => {
                fs.fallocate(cx, file, FallocMode::PunchHole, place, len as u64).expect("punch");
                model[at..at + len].fill(0);
            }
        }
    }
    model
}
