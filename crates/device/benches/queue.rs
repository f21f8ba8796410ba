//! What the way through the queue costs, measured in real time on this machine:
//! `cargo bench -p iopath-device --bench queue`. As a test it runs a few rounds only.

use base::{Page, Sector};
use block::{Bio, BioFlags, Device, IoGroup, Plug, Queue, QueueConfig};
use device::{Engine, MemoryDevice, OpenOptions};
use rt::{Cx, Runtime};
use std::sync::Arc;

const NONE: BioFlags = BioFlags::empty();
const SIZE: u64 = 64 << 20;

fn report(cx: &mut Cx, what: &str, rounds: u64, mut f: impl FnMut(&mut Cx, u64)) {
    let mut best = u64::MAX;
    for _ in 0..5 {
        let before = cx.now();
        (0..rounds).for_each(|round| f(cx, round));
        best = best.min(cx.now().since(before).0 / rounds.max(1));
    }
    println!("{what:55} {best:8} ns (measured, best of 5)");
}

fn queue(cx: &Cx, device: Arc<dyn Device>, elevator: &str) -> Arc<Queue> {
    Queue::new(cx.runtime(), device, QueueConfig::elevator(elevator)).expect("a queue")
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let rounds = if full { 200_000 } else { 20 };
    Runtime::real(1).enter("bench", |cx| {
        memory(cx, rounds);
        for engine in [Engine::Psync, Engine::Uring] {
            file(cx, engine, rounds / 4);
        }
    });
}

fn memory(cx: &mut Cx, rounds: u64) {
    let page = Page::from_slice(&[1; 4096]);
    for elevator in ["none", "deadline"] {
        let queue = queue(cx, Arc::new(MemoryDevice::new(SIZE)), elevator);
        report(cx, &format!("memory, {elevator}: write 4 KiB"), rounds, |cx, round| {
            let sector = Sector(round % 16384 * 8);
            queue.write(cx, sector, page.clone(), NONE).expect("memory takes it");
        });
        report(cx, &format!("memory, {elevator}: read 4 KiB"), rounds, |cx, round| {
            queue.read(cx, Sector(round % 16384 * 8), 4096).expect("memory gives it");
        });
        report(
            cx,
            &format!("memory, {elevator}: 256 plugged bios of 4 KiB"),
            rounds / 256,
            |cx, _| {
                run_of_256(cx, &queue, &page);
            },
        );
    }
}

fn run_of_256(cx: &mut Cx, queue: &Arc<Queue>, page: &Page) {
    let (group, mut plug) = (IoGroup::new(), Plug::new());
    for index in 0..256 {
        let bio = Bio::write(Sector(index * 8), [page.clone()], NONE, group.end());
        queue.submit_plugged(cx, &mut plug, bio);
    }
    plug.finish(cx);
    group.wait(cx).expect("the device takes it");
}

fn file(cx: &mut Cx, engine: Engine, rounds: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.img");
    let options = OpenOptions { write: true, direct: false, engine };
    let device = device::create_with(&path, SIZE, options).expect("an image");
    let queue = queue(cx, device, "none");
    let page = Page::from_slice(&[1; 4096]);
    run_of_256(cx, &queue, &page);
    report(cx, &format!("file, {engine:?}: write 4 KiB"), rounds, |cx, round| {
        queue.write(cx, Sector(round % 16384 * 8), page.clone(), NONE).expect("written");
    });
    report(cx, &format!("file, {engine:?}: read 4 KiB"), rounds, |cx, round| {
        queue.read(cx, Sector(round % 16384 * 8), 4096).expect("read");
    });
    report(cx, &format!("file, {engine:?}: 256 plugged bios of 4 KiB"), rounds / 256, |cx, _| {
        run_of_256(cx, &queue, &page);
    });
    let large = Page::from_slice(&[1; 1 << 20]);
    report(cx, &format!("file, {engine:?}: write 1 MiB"), rounds / 256, |cx, round| {
        queue.write(cx, Sector(round % 64 * 2048), large.clone(), NONE).expect("written");
    });
}
