//! Streams of requests in control groups, on a device that takes one request at a time.

use base::{Nanos, Page, Sector};
use block::control::GroupShare;
use block::{Bio, BioFlags, Device, DeviceInfo, DeviceIo, IoGroup, Op, Queue, QueueConfig};
use rt::{Cgroup, Cx, Runtime, SpinLock, World, WorldConfig};
use std::sync::Arc;

/// Each request takes so long.
const SERVICE: Nanos = Nanos::from_micros(500);
/// Of a request of a stream.
const BYTES: usize = 4096;

struct Server {
    info: DeviceInfo,
    runtime: Runtime,
    free: SpinLock<Nanos>,
}

impl Device for Server {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, io: DeviceIo) {
        let mut free = self.free.lock_irq();
        let end = (*free).max(self.runtime.now()) + SERVICE;
        *free = end;
        self.runtime.at(end, Box::new(move |_| io.succeed()));
    }

    fn name(&self) -> String {
        "server".to_owned()
    }
}

/// A process that has so many requests under way, one after another, and thinks between them.
#[derive(Clone, Copy)]
pub struct Stream {
    pub group: u32,
    pub op: Op,
    pub flags: BioFlags,
    pub depth: usize,
    pub think: Nanos,
    /// It begins so late.
    pub from: Nanos,
}

impl Stream {
    pub fn reads(group: u32) -> Stream {
        let (op, flags) = (Op::Read, BioFlags::empty());
        Stream { group, op, flags, depth: 1, think: Nanos::ZERO, from: Nanos::ZERO }
    }
}

/// What the queue is made of.
pub struct Scene<'a> {
    pub elevator: &'a str,
    pub controller: Option<&'a str>,
    pub tunables: &'a [(&'a str, &'a str)],
    pub shares: &'a [(u32, GroupShare)],
    pub rotational: bool,
}

impl Scene<'_> {
    pub fn of(elevator: &str) -> Scene<'_> {
        Scene { elevator, controller: None, tunables: &[], shares: &[], rotational: true }
    }

    /// Requests a second of each stream.
    pub fn play(&self, streams: &[Stream], seconds: u64) -> Vec<u64> {
        World::new(WorldConfig::default()).run("streams", |cx| {
            let mut info = DeviceInfo::plain(64 << 21);
            (info.depth, info.rotational) = (32, self.rotational);
            let (runtime, free) = (cx.runtime().clone(), SpinLock::default());
            let device = Arc::new(Server { info, runtime, free });
            let config = QueueConfig {
                controller: self.controller.map(str::to_owned),
                ..QueueConfig::elevator(self.elevator)
            };
            let queue = Queue::new(cx.runtime(), device, config).expect("a queue");
            for (name, value) in self.tunables {
                queue.set_tunable(name, value).expect(name);
            }
            for (group, share) in self.shares {
                queue.set_group(Cgroup(*group), share);
            }
            let end = Nanos::from_secs(seconds);
            let start = |(number, &stream): (usize, &Stream)| {
                let queue = queue.clone();
                cx.spawn("stream", move |cx| run(cx, &queue, stream, number as u64, end))
            };
            let tasks: Vec<_> = streams.iter().enumerate().map(start).collect();
            tasks.into_iter().map(|task| task.join(cx) / seconds).collect()
        })
    }
}

fn run(cx: &mut Cx, queue: &Arc<Queue>, stream: Stream, number: u64, end: Nanos) -> u64 {
    cx.set_cgroup(Cgroup(stream.group));
    cx.sleep(stream.from);
    let mut at = Sector(number << 22);
    let mut done = 0;
    while cx.now() < end {
        let group = IoGroup::new();
        for _ in 0..stream.depth {
            let segs = [block::Segment::whole(Page::zeroed(BYTES))].into_iter().collect();
            queue.submit(cx, Bio::new(stream.op, at, segs, stream.flags, group.end()));
            // Never a neighbour: requests stay apart.
            at = at + 16;
        }
        group.wait(cx).expect("the device does not fail");
        done += stream.depth as u64;
        cx.sleep(stream.think);
    }
    done
}

/// A share with that weight.
pub fn weight(weight: u32) -> GroupShare {
    GroupShare { weight: Some(weight), ..GroupShare::default() }
}

/// A device that is never sent anything.
pub fn nothing() -> impl Device {
    struct Nothing(DeviceInfo);
    impl Device for Nothing {
        fn info(&self) -> &DeviceInfo {
            &self.0
        }

        fn submit(&self, io: DeviceIo) {
            io.succeed();
        }

        fn name(&self) -> String {
            "nothing".to_owned()
        }
    }
    Nothing(DeviceInfo::plain(2048))
}
