//! Recording: a device that keeps a [`Log`](crate::Log) of what is done to it.

use std::io::Write;
use std::sync::Arc;

use base::page::is_zero;
use base::unit::SECTOR_SIZE;
use base::{Page, Sector};
use block::{BioFlags, Device, Op, Queue, Segment};
use device::{Entry, Event, RecordDevice, Recording};
use rt::Cx;

use crate::calls::Call;
use crate::log::{Header, LogError, LogWriter, Note, PIECE};

/// The end of a log that a device writes to; nothing is kept any more once it is taken.
pub struct Sink {
    writer: Option<LogWriter>,
    count: usize,
}

impl Recording for Sink {
    fn count(&self) -> usize {
        self.count
    }

    fn push(&mut self, Entry { came, event }: Entry) {
        let Some(writer) = &mut self.writer else { return };
        self.count += 1;
        match &event {
            Event::Write { segs, .. } => {
                writer.entry(came as u64, &event, segs.iter().map(|seg| seg.bytes()));
            }
            _ => writer.entry(came as u64, &event, std::iter::empty()),
        }
    }
}

/// Records a device, in real or in virtual time. It is given to a file system as
/// [`device`](Recorder::device).
pub struct Recorder {
    device: Arc<RecordDevice<Sink>>,
}

impl Recorder {
    /// Begins a log of what is done to `below`, with what is on it now. `header` is completed with
    /// the size and this program's name. May park: it reads the whole device.
    ///
    /// # Errors
    /// The log cannot be written, or the device cannot be read.
    pub fn new(
        cx: &mut Cx,
        below: Arc<dyn Device>,
        out: Box<dyn Write + Send>,
        header: Header,
    ) -> Result<Recorder, LogError> {
        let header = Header {
            sectors: below.info().sectors,
            recorded_by: format!("iopath {}", env!("CARGO_PKG_VERSION")),
            ..header
        };
        let mut writer = LogWriter::new(out, header)?;
        read_base(cx, &below, &mut writer)?;
        Ok(Recorder {
            device: Arc::new(RecordDevice::into(below, Sink { writer: Some(writer), count: 0 })),
        })
    }

    /// The device to mount on.
    pub fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Number of entries so far.
    pub fn len(&self) -> u64 {
        self.device.len() as u64
    }

    /// True where nothing happened yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that the workload has reached something: what is durable now stands behind it.
    pub fn mark(&self, text: &str) {
        let came = self.len();
        self.note(came, &Note::Mark(text.to_owned()));
    }

    /// Notes something that began when the log had `came` entries.
    pub fn note(&self, came: u64, note: &Note) {
        self.device.with_log(|sink| {
            if let Some(writer) = &mut sink.writer {
                sink.count += 1;
                writer.note(came, note);
            }
        });
    }

    /// Notes a call that returned, as [`note`](Recorder::note); `bytes` are what a write wrote.
    pub fn call<'a>(&self, came: u64, call: &Call, bytes: impl Iterator<Item = &'a [u8]>) {
        let offset = match call {
            Call::Write { offset, .. } => *offset,
            _ => 0,
        };
        self.device.with_log(|sink| {
            if let Some(writer) = &mut sink.writer {
                sink.count += 1;
                writer.call(came, call, offset, bytes);
            }
        });
    }

    /// Writes what is complete so far, so that it is there where this process is killed; whoever
    /// records calls it now and then. False where the log has ended.
    pub fn settle(&self) -> bool {
        self.device.with_log(|sink| sink.writer.as_mut().map(LogWriter::settle).is_some())
    }

    /// Ends the log. What the device is asked to do afterwards is not recorded.
    ///
    /// # Errors
    /// The log could not be written, now or earlier.
    pub fn finish(&self) -> Result<(), LogError> {
        match self.device.with_log(|sink| sink.writer.take()) {
            Some(writer) => writer.finish(),
            None => Ok(()),
        }
    }
}

/// Bytes of one read of the base.
const BASE_READ: usize = 1 << 20;

fn read_base(cx: &mut Cx, below: &Arc<dyn Device>, writer: &mut LogWriter) -> Result<(), LogError> {
    let failed = |error: &dyn std::fmt::Display| LogError::Io {
        what: "read the device before the run",
        error: std::io::Error::other(error.to_string()),
    };
    let queue = Queue::new(cx.runtime(), below.clone(), Default::default());
    let queue = queue.map_err(|error| failed(&error))?;
    let bytes = below.info().bytes();
    let step = BASE_READ.min(below.info().max_bytes as usize).max(PIECE) / PIECE * PIECE;
    // A device in memory answers with its own pages, zeroes with one and the same: those are known
    // by their address.
    let mut zero = Page::zeroed(PIECE);
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(step as u64) as usize;
        let segs = (0..len).step_by(PIECE).map(|from| Segment {
            page: zero.clone(),
            offset: 0,
            len: PIECE.min(len - from) as u32,
        });
        let (sector, flags) = (Sector(at / SECTOR_SIZE), BioFlags::empty());
        let done = queue.execute(cx, Op::Read, sector, segs.collect(), flags);
        done.result.map_err(|error| failed(&error))?;
        for (index, seg) in done.segs.into_iter().enumerate() {
            if seg.page.ptr_eq(&zero) {
                continue;
            }
            // What lies behind a short last block is still zero.
            match is_zero(&seg.page) {
                true => zero = seg.page,
                false => writer.base_block((at / PIECE as u64) as u32 + index as u32, &seg.page),
            }
        }
        at += len as u64;
    }
    Ok(())
}
