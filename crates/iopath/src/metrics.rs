//! Metrics of what serves: counts of a mount or a server, in the text format of Prometheus.
//!
//! Nothing is counted twice: requests are counted by [`requests`] where somebody asks for metrics,
//! all else by the layers themselves.

mod address;
mod families;
pub mod http;
mod measured;
mod requests;
pub mod scrape;
mod text;

use std::sync::Arc;

use anyhow::{Context, Result};
use base::Timespec;
use block::Queue;
use clap::Args;
use ext4::Ext4;
use nfs::Server;
use vfs::{FileSystem, Namespace};
use xfs::Xfs;

use crate::app::App;
use crate::session::Session;

pub use address::Address;
pub use measured::{ATTRIBUTE, Measured, OPERATIONS};
pub use requests::{Histogram, Requests, bound_seconds};

/// The options of what serves, for who watches it.
#[derive(Args)]
pub struct Watch {
    /// Serve metrics for Prometheus there, at /metrics: PORT of this machine, ADDRESS:PORT, or the
    /// path of a socket
    #[arg(long, value_name = "PLACE")]
    metrics: Option<Address>,
}

impl Watch {
    /// Listens where metrics are asked for; before the process is locked.
    ///
    /// # Errors
    /// Names the place.
    pub fn listen(&self) -> Result<Option<Listening>> {
        let Some(address) = &self.metrics else { return Ok(None) };
        let place = || format!("--metrics {address}");
        let listener = address.bind().with_context(place)?;
        let place = Address::of(&listener).with_context(place)?;
        Ok(Some(Listening { listener, place }))
    }
}

/// A socket at which nobody is answered yet.
pub struct Listening {
    listener: device::nbd::Listener,
    place: Address,
}

impl Listening {
    /// From now on the requests to this session are counted.
    pub fn measured(&self, app: &App, face: &'static str, session: &mut Session) -> Metrics {
        let requests = Arc::new(Requests::new(face, OPERATIONS));
        let place = self.place.to_string().into_bytes();
        let fs = session.fs.clone();
        let measured = Arc::new(Measured::new(fs.clone(), requests.clone(), place));
        session.fs = measured.clone();
        session.names = Namespace::new(measured);
        let (ext, xfs) = (session.ext.clone(), session.xfs.clone());
        let queue = ext.as_ref().map(|fs| fs.queue().clone());
        let queue = queue.or_else(|| xfs.as_ref().map(|fs| fs.queue().clone()));
        Metrics { requests, began: app.cx.realtime(), fs: Some(fs), ext, xfs, queue, nfs: None }
    }

    /// Answers from now on, in a task of its own.
    pub fn serve(self, app: &mut App, metrics: Metrics) {
        app.out.note(format!("metrics at {}", self.place.url()));
        let listener = self.listener;
        app.cx.spawn("metrics", move |cx| http::serve(cx, &listener, &|| metrics.text()));
    }
}

/// What is counted of a mount or a server.
pub struct Metrics {
    /// The requests to it.
    pub requests: Arc<Requests>,
    /// The NFS server, where it is one.
    pub nfs: Option<Arc<Server>>,
    began: Timespec,
    fs: Option<Arc<dyn FileSystem>>,
    ext: Option<Arc<Ext4>>,
    xfs: Option<Arc<Xfs>>,
    queue: Option<Arc<Queue>>,
}

impl Metrics {
    /// Of a device that is served as it is.
    pub fn of_device(app: &App, queue: &Arc<Queue>) -> Metrics {
        Metrics {
            requests: Arc::new(Requests::new("nbd", requests::OF_NBD)),
            began: app.cx.realtime(),
            queue: Some(queue.clone()),
            nfs: None,
            fs: None,
            ext: None,
            xfs: None,
        }
    }
}
