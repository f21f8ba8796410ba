//! Finds the root of an export: portmapper and MOUNT.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use base::{Errno, Nanos};
use rt::Cx;
use thiserror::Error;

use super::rpc::{RpcClient, RpcOptions};
use super::{NfsClient, NfsOptions, Url};
use crate::proto::Handle;
use crate::rpc::{self, Auth, ReplyError};
use crate::wire::{TcpWire, Wire};
use crate::xdr::XdrError;

const NFS_PORT: u16 = 2049;
const TCP: u32 = 6;

/// Why an export was not mounted.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MountError {
    #[error("{host}: {cause}")]
    Resolve { host: String, cause: String },
    #[error("{what} at {address}: {errno}")]
    Call { what: &'static str, address: SocketAddr, errno: Errno },
    #[error("{what} at {address}: {cause}")]
    Reply { what: &'static str, address: SocketAddr, cause: ReplyError },
    #[error("the portmapper at {address} knows no {what} over TCP; name its port in the address")]
    NoPort { what: &'static str, address: SocketAddr },
    #[error("{address} does not export `{path}` to us: {errno}")]
    Refused { address: SocketAddr, path: String, errno: Errno },
    #[error("the root of {address}:{path}: {errno}")]
    Root { address: SocketAddr, path: String, errno: Errno },
}

/// A server's MOUNT and portmapper, asked once each.
struct Asked {
    what: &'static str,
    address: SocketAddr,
}

impl Asked {
    fn ask<T>(
        &self,
        cx: &mut Cx,
        procedure: (u32, u32, u32),
        write: impl FnOnce(&mut crate::xdr::Writer),
        read: impl FnOnce(&mut crate::xdr::Reader<'_>) -> Result<T, XdrError>,
    ) -> Result<T, MountError> {
        let (what, address) = (self.what, self.address);
        let options = RpcOptions { slots: 1, timeout: Nanos::from_secs(10), attempts: Some(3) };
        let wire: Arc<dyn Wire> = TcpWire::new(address);
        let client = RpcClient::start(cx, wire, options);
        let auth = Auth::of(cx.cred());
        let record = client.call(cx, procedure, auth, write);
        client.stop(cx);
        let record = record.map_err(|errno| {
            // Never connected, whatever the last attempt said.
            let errno = if errno == Errno::ETIMEDOUT { Errno::ECONNREFUSED } else { errno };
            MountError::Call { what, address, errno }
        })?;
        let garbled = |cause| MountError::Reply { what, address, cause };
        let mut reader = rpc::read_reply(&record).map_err(garbled)?;
        read(&mut reader).map_err(|cause| garbled(cause.into()))
    }
}

/// Asks the portmapper for the port of a program.
fn ask_port(
    cx: &mut Cx,
    address: SocketAddr,
    what: &'static str,
    program: u32,
) -> Result<u16, MountError> {
    let asked = Asked { what: "the portmapper", address };
    let write = |w: &mut crate::xdr::Writer| {
        w.words(&[program, 3, TCP, 0]);
    };
    let port = asked.ask(cx, (rpc::PORTMAP, 2, 3), write, |r| r.u32())?;
    match u16::try_from(port) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(MountError::NoPort { what, address }),
    }
}

impl NfsClient {
    /// Mounts an export over TCP. Ports that the address does not name are asked for. May park.
    ///
    /// # Errors
    /// Who could not be reached, or refused what.
    pub fn mount_url(
        cx: &mut Cx,
        url: &Url,
        options: NfsOptions,
    ) -> Result<Arc<NfsClient>, MountError> {
        let unknown = |cause: String| MountError::Resolve { host: url.host.clone(), cause };
        let mut found =
            (url.host.as_str(), 0).to_socket_addrs().map_err(|e| unknown(e.to_string()))?;
        let host = found.next().ok_or_else(|| unknown("no address".to_owned()))?;
        let portmapper = SocketAddr::new(host.ip(), url.portmap_port);
        let mount_port = match url.mount_port {
            Some(port) => port,
            None => ask_port(cx, portmapper, "MOUNT version 3", rpc::MOUNT)?,
        };
        let port = match url.port {
            Some(port) => port,
            None => ask_port(cx, portmapper, "NFS version 3", rpc::NFS).unwrap_or(NFS_PORT),
        };
        let address = SocketAddr::new(host.ip(), mount_port);
        let asked = Asked { what: "MOUNT", address };
        let root = asked.ask(
            cx,
            (rpc::MOUNT, 3, 1),
            |w| w.opaque(url.path.as_bytes()),
            |r| match r.u32()? {
                0 => Handle::read(r).map(Ok),
                status => Ok(Err(status)),
            },
        )?;
        let (address, path) = (SocketAddr::new(host.ip(), port), url.path.clone());
        let root = root.map_err(|status| {
            let errno = crate::proto::Status(status).check().err().unwrap_or(Errno::EIO);
            MountError::Refused { address, path: path.clone(), errno }
        })?;
        let wire: Arc<dyn Wire> = TcpWire::new(address);
        NfsClient::mount(cx, wire, root, options).map_err(|errno| MountError::Root {
            address,
            path,
            errno,
        })
    }
}
