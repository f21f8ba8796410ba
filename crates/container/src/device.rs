//! An image as a device: requests carried out in the calling thread or by a few threads.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "threads of the host, not tasks, meet here"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use base::Sector;
use base::unit::SECTOR_SIZE;
use block::{Cause, Device, DeviceError, DeviceInfo, DeviceIo, Op};

use crate::{Error, Image};

/// Called with every error of an image, once for each read that failed.
type OnError = Box<dyn Fn(&Error) + Send + Sync>;

/// The disk inside a container as a device. It accepts writes where the image does.
pub struct ImageDevice {
    core: Arc<Core>,
    info: DeviceInfo,
    /// Where the requests go, where threads carry them out; they end with it.
    pool: Option<Mutex<Sender<DeviceIo>>>,
}

struct Core {
    image: Arc<dyn Image>,
    name: String,
    on_error: OnError,
}

impl ImageDevice {
    /// A device, called `name`. Bytes behind the last whole sector are left out.
    pub fn new(image: Arc<dyn Image>, name: &str) -> ImageDevice {
        ImageDevice::reporting(image, name, |_| ())
    }

    /// As [`ImageDevice::new`]; `on_error` learns why a read failed, in words, from any thread.
    pub fn reporting(
        image: Arc<dyn Image>,
        name: &str,
        on_error: impl Fn(&Error) + Send + Sync + 'static,
    ) -> ImageDevice {
        let info = DeviceInfo {
            read_only: !image.is_writable(),
            volatile_cache: image.is_writable(),
            fua: false,
            discard: image.is_writable() && image.discards(),
            logical_block: image.logical_block(),
            physical_block: image.logical_block().max(4096),
            write_zeroes: false,
            max_bytes: 4 << 20,
            max_segments: 1024,
            ..DeviceInfo::plain(
                image.size() / u64::from(image.logical_block()) * u64::from(image.logical_block())
                    / SECTOR_SIZE,
            )
        };
        let threads = image.threads();
        let core = Arc::new(Core { image, name: name.to_owned(), on_error: Box::new(on_error) });
        let pool = (threads > 0).then(|| Mutex::new(core.start(threads)));
        ImageDevice { core, info, pool }
    }

    /// The image inside.
    pub fn image(&self) -> &Arc<dyn Image> {
        &self.core.image
    }
}

impl Core {
    /// Threads that carry requests out until the sender is gone.
    fn start(self: &Arc<Core>, threads: usize) -> Sender<DeviceIo> {
        let (sender, receiver) = channel::<DeviceIo>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let (core, receiver) = (self.clone(), receiver.clone());
            let name = "iopath-image".to_owned();
            let work = move || {
                while let Some(io) = next(&receiver) {
                    core.carry_out(io);
                }
            };
            // With fewer threads it is slower; without any, requests end as dropped.
            let _fewer = std::thread::Builder::new().name(name).spawn(work);
        }
        sender
    }

    fn carry_out(&self, mut io: DeviceIo) {
        if io.segs.len() > 1 {
            // One look at the tables and one read below for all of it.
            let mut whole = vec![0; io.bytes() as usize];
            if self.read(io.sector.bytes(), &mut whole).is_ok() {
                let mut rest = &whole[..];
                for seg in &mut io.segs {
                    let (part, behind) = rest.split_at(seg.len as usize);
                    seg.bytes_mut().copy_from_slice(part);
                    rest = behind;
                }
                return io.succeed();
            }
        }
        // One by one, so that the error names no more than what failed.
        let mut at = io.sector.bytes();
        let mut failed: Option<DeviceError> = None;
        for index in 0..io.segs.len() {
            let len = u64::from(io.segs[index].len);
            if let Err(error) = self.read(at, io.segs[index].bytes_mut()) {
                (self.on_error)(&error);
                let sector = Sector::from_bytes(at);
                let first = DeviceError { op: Op::Read, sector, count: 0, cause: Cause::Io };
                let failed = failed.get_or_insert(first);
                failed.count = (at + len).div_ceil(SECTOR_SIZE) - failed.sector.0;
            }
            at += len;
        }
        io.complete(failed.map_or(Ok(()), Err));
    }

    /// Writes, or makes durable what was written.
    fn change(&self, mut io: DeviceIo) {
        let (op, sector, len) = (io.op, io.sector, io.bytes());
        let done = match op {
            Op::Flush => self.guarded("flushing".to_owned(), || self.image.flush()),
            Op::Discard => {
                let (at, len) = (sector.bytes(), io.count * SECTOR_SIZE);
                let doing = format!("discarding {len} bytes at {at}");
                self.guarded(doing, || self.image.discard(at..at + len))
            }
            _ => {
                let mut whole = Vec::with_capacity(len as usize);
                io.segs.iter_mut().for_each(|seg| whole.extend_from_slice(seg.bytes_mut()));
                let at = sector.bytes();
                let doing = format!("writing {len} bytes at {at}");
                self.guarded(doing, || self.image.write_at(at, &whole))
            }
        };
        if let Err(error) = &done {
            (self.on_error)(error);
        }
        let error = DeviceError { op, sector, count: len / SECTOR_SIZE, cause: Cause::Io };
        io.complete(done.map_err(|_| error));
    }

    /// Reads from the image; a defect of ours or of a library ends this request alone.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let doing = format!("reading {} bytes at {at}", bytes.len());
        self.guarded(doing, || self.image.read_at(at, bytes))
    }

    fn guarded(
        &self,
        doing: String,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let done = catch_unwind(AssertUnwindSafe(work));
        done.unwrap_or_else(|panic| {
            Err(Error::Panic {
                name: self.name.clone(),
                format: self.image.format(),
                library: "container",
                doing,
                what: panic_text(&*panic),
            })
        })
    }
}

/// The next request; none when the device is gone. One thread waits, the others wait for its turn.
fn next(receiver: &Mutex<Receiver<DeviceIo>>) -> Option<DeviceIo> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".into())
}

impl Device for ImageDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn lengthen(&self, bytes: u64) -> Option<u64> {
        let image = &self.core.image;
        if image.is_writable() && bytes > image.size() {
            let doing = format!("growing to {bytes} bytes");
            if let Err(error) = self.core.guarded(doing, || image.grow(bytes)) {
                (self.core.on_error)(&error);
            }
        }
        let block = u64::from(image.logical_block());
        Some(image.size() / block * block / SECTOR_SIZE)
    }

    fn submit(&self, io: DeviceIo) {
        match (io.op, &self.pool) {
            (Op::Read, None) => self.core.carry_out(io),
            (Op::Read, Some(pool)) => {
                let pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
                // A request that nobody takes completes itself.
                let _dropped = pool.send(io);
            }
            (Op::Write | Op::Flush | Op::Discard, _) if self.core.image.is_writable() => {
                self.core.change(io)
            }
            (Op::Flush, _) => io.succeed(),
            (Op::Write | Op::Discard | Op::WriteZeroes, _) => io.fail(Cause::ReadOnly),
        }
    }

    fn name(&self) -> String {
        self.core.name.clone()
    }
}
