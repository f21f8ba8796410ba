//! Instructions of an operation, by callgrind: the same on a busy machine and on an idle one, and
//! in every run but for what allocation makes of it. A process of its own does the work
//! ([`work`]); only what a task executes in [`counted_operations`] counts, not the journal's task.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use cache::LruKind;
use ext4::LegacyLookups;
use rt::Cx;

use super::bed::{Base, Bed, Set, Shape, Variant};
use super::operations::{Cell, PHASES, operations};
use crate::program::Figures;
use crate::report::{Align, TextTable};

/// The sizes of the array that are counted beside ours.
pub const SIZES: [usize; 7] = [8, 12, 16, 24, 32, 48, 64];

/// The name by which callgrind knows what to count; patterns do not dump.
const COUNTED: &str = concat!(module_path!(), "::counted_operations");

/// How much is counted.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Names in the directory before.
    pub names: u64,
    /// Operations of each phase.
    pub files: u64,
}

/// What an operation of one size takes.
#[derive(Clone, Copy, Debug)]
pub struct InstructionRow {
    /// The set.
    pub set: Set,
    /// The size, or ours.
    pub variant: Variant,
    /// Instructions of an operation, by phase.
    pub instructions: [f64; 3],
}

fn variants() -> impl Iterator<Item = Variant> {
    SIZES.into_iter().map(Variant::Array).chain([Variant::Ours])
}

/// What callgrind looks at: all variants after one another, each phase once without counting (so
/// that everything is in memory) and once with. May park.
///
/// # Errors
/// A sentence on what failed.
pub fn work(cx: &mut Cx, set: Set, amount: Amount) -> Result<(), String> {
    let shape = Shape { names: amount.names, dirs: 1, name_len: 0, fragmented: false, quota: true };
    let base = Base::make(cx, &set.setup(shape))?;
    let legacy = LegacyLookups::Off;
    let cell = Cell { by_path: set.by_path(), dirs: 1, tasks: 1, legacy };
    for variant in variants() {
        let bed = base.mount(cx, legacy)?;
        let buffers = bed.fs.buffers();
        let kind = variant.size().map_or(buffers.lru_kind(), LruKind::Array);
        buffers.exchange_lrus(&mut buffers.spare_lrus(kind));
        for phase in 0..PHASES.len() {
            operations(cx, &bed, &cell, 0, 0..amount.files, phase)?;
        }
        for phase in 0..PHASES.len() {
            counted_operations(cx, &bed, &cell, amount.files, phase)?;
        }
        bed.end(cx)?;
    }
    Ok(())
}

/// What callgrind counts: see [`COUNTED`].
#[inline(never)]
fn counted_operations(
    cx: &mut Cx,
    bed: &Bed,
    cell: &Cell,
    files: u64,
    phase: usize,
) -> Result<(), String> {
    operations(cx, bed, cell, 0, 0..files, phase)
}

/// Counts the operations of a set: `program` with `arguments` calls [`work`] for that set and that
/// amount.
///
/// # Errors
/// valgrind cannot be started, or failed: with what it said.
pub fn count<S: AsRef<OsStr>>(
    program: &Path,
    arguments: &[S],
    set: Set,
    amount: Amount,
) -> Result<Vec<InstructionRow>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let out = folder.path().join("callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind".to_owned(), format!("--toggle-collect={COUNTED}")])
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("valgrind (Debian: apt-get install valgrind): {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind: {}: {text}", output.status));
    }
    let mut number = 0;
    let mut next = || {
        number += 1;
        total(&folder.path().join(format!("callgrind.{number}")))
    };
    let mut rows = Vec::new();
    for variant in variants() {
        let mut instructions = [0.0; 3];
        for phase in &mut instructions {
            *phase = next()? as f64 / amount.files as f64;
        }
        rows.push(InstructionRow { set, variant, instructions });
    }
    Ok(rows)
}

/// Counts in another process of this program, which has to be the command `iopath`.
///
/// # Errors
/// As [`count`]; this is another program.
pub fn count_in_command(set: Set, amount: Amount) -> Result<Vec<InstructionRow>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    if program.file_stem().is_none_or(|name| name != "iopath") {
        return Err(format!("{}: only the command `iopath` counts itself", program.display()));
    }
    let (names, files) = (amount.names.to_string(), amount.files.to_string());
    let words = ["lab", "instructions", "--work", "--set", set.letter(), "--names", &names];
    count(&program, &[&words[..], &["--files", &files]].concat(), set, amount)
}

/// The figures of some variants, and what they are beside 8 entries, in per cent.
pub(super) fn figures(rows: &[InstructionRow], variants: &[Variant]) -> Vec<Figures> {
    let of = |variant: Variant| rows.iter().find(|row| row.variant == variant);
    let one = |&variant: &Variant| {
        let mut figures = Figures::default();
        let (row, eight) = (of(variant), of(Variant::Array(SIZES[0])));
        let Some((row, eight)) = row.zip(eight) else { return figures };
        for (phase, what) in PHASES.iter().enumerate() {
            let (count, base) = (row.instructions[phase], eight.instructions[phase]);
            figures.set(format!("{what}_instructions"), count);
            figures.set(format!("{what}_instructions_to_8"), (count / base - 1.0) * 100.0);
        }
        figures
    };
    variants.iter().map(one).collect()
}

/// The sum in one of callgrind's files.
fn total(path: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let sums = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:"))?;
        rest.trim().parse().ok()
    };
    let found = text.lines().filter_map(sums).find(|&sum| sum > 0);
    found.ok_or_else(|| format!("{}: callgrind counted nothing", path.display()))
}

/// Instructions of each size, and what they are beside those of 8 entries.
pub fn table(rows: &[InstructionRow]) -> TextTable {
    let heads = ["set", "LRU", "create", "to 8", "lookup", "to 8", "remove", "to 8"];
    let align = |index| if index < 2 { Align::Left } else { Align::Right };
    let heads = heads.iter().enumerate().map(|(index, head)| (*head, align(index)));
    let mut table = TextTable::new(heads);
    for row in rows {
        let eight = |other: &&InstructionRow| {
            other.set == row.set && other.variant == Variant::Array(SIZES[0])
        };
        let base = rows.iter().find(eight).map_or(row.instructions, |row| row.instructions);
        let mut cells = vec![format!("({})", row.set.letter()), row.variant.name()];
        for (count, base) in row.instructions.iter().zip(base) {
            cells.push(format!("{count:.0}"));
            cells.push(format!("{:+.1} %", (count / base - 1.0) * 100.0));
        }
        table.row(cells);
    }
    table
}
