//! A server, a modelled network and clients in one world.
#![allow(dead_code, reason = "each test uses a part")]

use std::net::IpAddr;
use std::sync::Arc;

use base::Nanos;
use model::{LinkParams, Rate};
use nfs::client::rpc::RpcOptions;
use nfs::wire::{LinkWire, Net, Nfsd};
use nfs::{Export, HandleKey, NfsClient, NfsOptions, Server, Squash};
use rt::{Cx, World, WorldConfig};
use vfs::FileSystem;

pub fn key() -> HandleKey {
    HandleKey::new([42; 32])
}

/// A writable export for everybody.
pub fn export() -> Export {
    Export {
        read_only: false,
        squash: Squash::None,
        allowed: vec!["0.0.0.0/0".parse().unwrap()],
        ..Export::new(b"/export", key())
    }
}

pub fn gigabit() -> LinkParams {
    LinkParams {
        latency: Nanos::from_micros(50),
        rate: Rate(125_000_000),
        per_message: Nanos::from_micros(10),
        header: 78,
        mtu: 1538,
    }
}

pub struct Site {
    pub fs: Arc<dyn FileSystem>,
    pub nfsd: Arc<Nfsd>,
    pub net: Arc<Net>,
    pub life: u64,
}

impl Site {
    pub fn new(cx: &mut Cx, fs: Arc<dyn FileSystem>) -> Site {
        let server = Arc::new(Server::new(fs.clone(), export(), 7, 1));
        let nfsd = Nfsd::start(cx, server, 8);
        let net = Net::new(cx.runtime(), gigabit(), nfsd.clone());
        Site { fs, nfsd, net, life: 1 }
    }

    /// Mounts as a further client.
    pub fn client(&self, cx: &mut Cx, number: u8, options: NfsOptions) -> Arc<NfsClient> {
        self.client_and_wire(cx, number, options).0
    }

    pub fn client_and_wire(
        &self,
        cx: &mut Cx,
        number: u8,
        options: NfsOptions,
    ) -> (Arc<NfsClient>, Arc<LinkWire>) {
        let wire = LinkWire::new(&self.net, IpAddr::from([10, 0, 0, number]));
        let root = self.fs.getattr(cx, self.fs.root()).unwrap();
        let root = key().make(root.ino, root.generation);
        let client = NfsClient::mount(cx, wire.clone(), root, options).unwrap();
        (client, wire)
    }

    /// The server goes and comes back over `fs`, in another life.
    pub fn restart(&mut self, cx: &mut Cx, fs: Arc<dyn FileSystem>, away: Nanos) {
        self.nfsd.down();
        cx.sleep(away);
        self.life += 1;
        self.fs = fs.clone();
        self.nfsd.up(Arc::new(Server::new(fs, export(), 7, self.life)));
    }
}

pub fn quick_calls() -> NfsOptions {
    let rpc = RpcOptions { slots: 16, timeout: Nanos::from_millis(500), attempts: None };
    NfsOptions { rpc, ..NfsOptions::default() }
}

/// Runs `f` in a world of this seed.
pub fn world<T>(seed: u64, f: impl FnOnce(&mut Cx) -> T) -> T {
    World::new(WorldConfig { seed, ..WorldConfig::default() }).run("test", f)
}
