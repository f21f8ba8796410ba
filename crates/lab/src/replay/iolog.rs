//! Lists of operations of fio, versions 2 and 3: one for each job.

use base::Nanos;
use block::{BioFlags, Op};
use workload::fio::{Action, Direction, Operation, OperationList};

use super::{Io, Trace};

/// Files lie behind each other, each at a multiple of this many bytes.
const APART: u64 = 1 << 20;

/// Reads lists. Each is a process; their files lie behind each other on the device, and a file that
/// two lists name is one. A sync is a flush.
///
/// # Errors
/// A line that is none, with the file and its number.
pub fn read(files: &[(String, Vec<u8>)]) -> Result<Trace, String> {
    let mut trace = Trace::default();
    let mut lists = Vec::new();
    for (file, bytes) in files {
        let text = std::str::from_utf8(bytes).map_err(|_| format!("{file}: it is no text"))?;
        let list = OperationList::parse(text, None);
        lists.push(list.map_err(|(line, what)| format!("{file}:{line}: {what}"))?);
    }
    // What each file needs, by its name.
    let mut sizes: Vec<(String, u64)> = Vec::new();
    for list in &lists {
        for (number, name) in list.files.iter().enumerate() {
            let size = list.size(number).max(1);
            match sizes.iter_mut().find(|(known, _)| known == name) {
                Some((_, most)) => *most = size.max(*most),
                None => sizes.push((name.clone(), size)),
            }
        }
    }
    let place = |name: &str| -> u64 {
        let before = sizes.iter().take_while(|(known, _)| known != name);
        before.map(|(_, size)| size.next_multiple_of(APART)).sum()
    };
    for (index, (list, (file, _))) in lists.iter().zip(files).enumerate() {
        let pid = index as u32 + 1;
        trace.names.insert(pid, file.clone());
        let places: Vec<u64> = list.files.iter().map(|name| place(name)).collect();
        for one in &list.operations {
            let (op, flags) = match one.action {
                Action::Move(Direction::Read) => (Op::Read, BioFlags::empty()),
                Action::Move(Direction::Write) => (Op::Write, BioFlags::SYNC),
                Action::Move(Direction::Trim) => (Op::Discard, BioFlags::empty()),
                Action::Sync(_) => (Op::Flush, BioFlags::empty()),
            };
            let first = places.get(one.file).copied().unwrap_or(0) + one.extent.offset;
            let (sector, count) = (first / 512, one.extent.len.div_ceil(512));
            trace.ios.push(Io { at: one.at, pid, op, sector, count, flags, done: None });
        }
    }
    let unaligned = lists.iter().flat_map(|list| &list.operations);
    let odd = |one: &&Operation| !(one.extent.offset | one.extent.len).is_multiple_of(512);
    let unaligned = unaligned.filter(odd).count();
    if unaligned > 0 {
        trace.notes.push(format!("{unaligned} operations are rounded to sectors of 512 bytes"));
    }
    if trace.ios.iter().all(|io| io.at == Nanos::ZERO) {
        trace.notes.push("the lists have no times: replay them closed".to_owned());
    }
    Ok(trace)
}
