//! The server's tasks: nfsd.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt::{Channel, Cx, JoinHandle, SpinLock};

use crate::server::Server;

/// Calls that may wait for a task. A connection waits where there are more.
const WAITING_MAX: usize = 4096;

/// The way back to a client.
pub trait Back: Send + Sync {
    /// Sends an answer. May park. An answer that does not arrive is the client's to ask for again.
    fn reply(&self, cx: &mut Cx, record: Vec<u8>);
}

/// A call that came in.
pub struct Job {
    /// Address of the client.
    pub peer: IpAddr,
    /// The record without its mark.
    pub record: Vec<u8>,
    /// Where the answer goes.
    pub back: Arc<dyn Back>,
}

/// A number of tasks that carry out calls. The server behind them can go and come back, as a
/// machine that restarts: calls meanwhile, and answers of those under way, are lost.
pub struct Nfsd {
    jobs: Channel<Job>,
    server: SpinLock<Option<Arc<Server>>>,
    tasks: SpinLock<Vec<JoinHandle<()>>>,
    /// Counts servers that came: connections do not outlive one.
    lives: AtomicU64,
}

impl Nfsd {
    /// Starts `tasks` tasks for a server.
    pub fn start(cx: &mut Cx, server: Arc<Server>, tasks: usize) -> Arc<Nfsd> {
        let nfsd = Arc::new(Nfsd {
            jobs: Channel::named("calls", WAITING_MAX),
            server: SpinLock::named("nfsd server", Some(server)),
            tasks: SpinLock::named("nfsd tasks", Vec::new()),
            lives: AtomicU64::new(0),
        });
        for _ in 0..tasks.max(1) {
            let own = nfsd.clone();
            let task = cx.spawn("nfsd", move |cx| own.run(cx));
            nfsd.tasks.lock_irq().push(task);
        }
        nfsd
    }

    /// Takes a call. Event context; false where too many wait, and the call is lost.
    pub fn take(&self, job: Job) -> bool {
        self.jobs.try_send(job).is_ok()
    }

    /// Takes a call. May park: waits for room. False once the tasks are stopped.
    pub fn take_waiting(&self, cx: &mut Cx, job: Job) -> bool {
        self.jobs.send(cx, job).is_ok()
    }

    /// The server goes: no call is answered until the next [`up`](Self::up).
    pub fn down(&self) -> Option<Arc<Server>> {
        self.server.lock_irq().take()
    }

    /// A server comes.
    pub fn up(&self, server: Arc<Server>) {
        *self.server.lock_irq() = Some(server);
        self.lives.fetch_add(1, Ordering::Relaxed);
    }

    /// Differs between two servers that came one after the other.
    pub fn life(&self) -> u64 {
        self.lives.load(Ordering::Relaxed)
    }

    /// True where a server is there.
    pub fn is_up(&self) -> bool {
        self.server.lock_irq().is_some()
    }

    /// Ends the tasks when they have answered what waits. May park.
    pub fn stop(&self, cx: &mut Cx) {
        self.jobs.close();
        let tasks = std::mem::take(&mut *self.tasks.lock_irq());
        for task in tasks {
            task.join(cx);
        }
    }

    fn run(&self, cx: &mut Cx) {
        while let Some(job) = self.jobs.recv(cx) {
            let Some(server) = self.server.lock(cx).clone() else { continue };
            let Some(reply) = server.answer(cx, job.peer, &job.record) else { continue };
            let same = self.server.lock(cx).as_ref().is_some_and(|now| Arc::ptr_eq(now, &server));
            if same {
                job.back.reply(cx, reply);
            }
        }
    }
}
