//! The document's figures.

/// Processors of the document's workload.
pub const CPUS: f64 = 16.0;
/// Files of the document's runs: its rates by its times, rounded to what its tool makes.
pub const FILES: f64 = 51_200_000.0;
/// Creates a second: without and with the patch, at 4 KiB and at 64 KiB.
pub const CREATES: [[f64; 2]; 2] = [[220e3, 115e3], [230e3, 143e3]];
/// Seconds of all creates, likewise.
pub const CREATE_SECONDS: [[f64; 2]; 2] = [[248.0, 441.0], [239.0, 383.0]];
/// Seconds of all unlinks, likewise.
pub const UNLINK_SECONDS: [[f64; 2]; 2] = [[313.0, 805.0], [303.0, 753.0]];
/// Share of the time at 64 KiB in `xfs_next_bit`, `xfs_buf_offset`, `xfs_buf_item_format` and
/// `xfs_buf_item_size_segment`; with the patch also `xfs_contig_bits`. In per cent.
pub const FORMAT_SHARE: [f64; 2] = [6.22 + 3.55 + 3.53 + 2.84, 0.34 + 0.21 + 0.16 + 0.13];
/// Share of the time at 64 KiB in `memcpy`, in per cent.
pub const COPY_SHARE: [f64; 2] = [7.10, 9.25];
/// Share of the time at 64 KiB in `xfs_dir3_leaf_check_int`, in per cent.
pub const CHECK_SHARE: [f64; 2] = [20.66, 25.26];
