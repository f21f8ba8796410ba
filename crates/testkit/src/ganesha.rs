//! A running nfs-ganesha: a server of NFS version 3 that shares no code with ours.
//!
//! It needs root, the portmapper and Debian's `nfs-ganesha`, `nfs-ganesha-vfs` and `rpcbind`. Its
//! log names every call that it carries out, so that our counts can be compared with its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base::Nanos;
use rt::Cx;

/// The server, with an export of its own; ends with the value.
pub struct Ganesha {
    child: Child,
    rpcbind: Option<Child>,
    place: tempfile::TempDir,
    ports: (u16, u16),
}

fn spawn(program: &str, args: &[&str]) -> Child {
    let quiet = || Stdio::null();
    Command::new(program)
        .args(args)
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}; install it: cargo xtask judges"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

impl Ganesha {
    /// Starts it on free ports, with a portmapper where none answers. `calls`: its log names every
    /// call, which slows it down.
    ///
    /// # Panics
    /// If it does not come up, with its log.
    pub fn start(cx: &mut Cx, calls: bool) -> Ganesha {
        let place = tempfile::tempdir().expect("a temporary directory");
        for dir in ["/run/rpcbind", "/run/ganesha", "/var/lib/nfs/ganesha"] {
            std::fs::create_dir_all(dir).expect("made");
        }
        std::fs::create_dir(place.path().join("export")).expect("made");
        let answers = || std::net::TcpStream::connect("127.0.0.1:111").is_ok();
        let rpcbind = (!answers()).then(|| spawn("rpcbind", &["-f"]));
        for _ in 0..100 {
            if answers() {
                break;
            }
            cx.sleep(Nanos::from_millis(50));
        }
        let ports = (free_port(), free_port());
        let at = |name: &str| place.path().join(name).display().to_string();
        let text = configuration(&at("export"), ports, calls);
        std::fs::write(at("conf"), text).expect("written");
        let (conf, log, pid) = (at("conf"), at("log"), at("pid"));
        let args = ["-F", "-f", &conf, "-L", &log, "-p", &pid];
        // Ends with the value, also where it does not come up.
        let child = spawn("ganesha.nfsd", &args);
        let ganesha = Ganesha { child, rpcbind, place, ports };
        for _ in 0..400 {
            if ganesha.log().contains("NFS SERVER INITIALIZED") {
                return ganesha;
            }
            cx.sleep(Nanos::from_millis(50));
        }
        panic!("nfs-ganesha does not start: {}", ganesha.log());
    }

    /// Ports of NFS and of MOUNT.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// The export as iopath addresses it.
    pub fn url(&self) -> String {
        let (nfs, mount) = self.ports;
        format!("nfs://127.0.0.1:{nfs}/export?mountport={mount}")
    }

    /// A path in the export as libnfs addresses it.
    pub fn libnfs_url(&self, path: &str) -> String {
        let (nfs, mount) = self.ports;
        format!("nfs://127.0.0.1/export{path}?nfsport={nfs}&mountport={mount}")
    }

    /// The directory of the host that is exported.
    pub fn export(&self) -> PathBuf {
        self.place.path().join("export")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    /// Calls of a procedure that the server has carried out, as it says itself: `READ`, `WRITE`,
    /// `COMMIT`, ..
    pub fn calls(&self, procedure: &str) -> u64 {
        let call = format!("Calling NFS3_{procedure} ");
        self.log().lines().filter(|line| line.contains(&call)).count() as u64
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        for child in [Some(&mut self.child), self.rpcbind.as_mut()].into_iter().flatten() {
            let _ended_already = child.kill();
            let _ended_already = child.wait();
        }
    }
}

fn configuration(export: &str, (nfs, mount): (u16, u16), calls: bool) -> String {
    let calls = if calls { "Components { NFSPROTO = DEBUG; }" } else { "" };
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3, 4; mount_path_pseudo = true; Enable_NLM = false;
           Enable_RQUOTA = false; Bind_addr = 127.0.0.1; NFS_Port = {nfs}; MNT_Port = {mount}; }}
         NFSV4 {{ Graceless = true; Only_Numeric_Owners = true; RecoveryBackend = fs; }}
         NFS_KRB5 {{ Active_krb5 = false; }}
         EXPORT {{ Export_Id = 1; Path = \"{export}\"; Pseudo = \"/export\"; Access_Type = RW;
           Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP;
           FSAL {{ Name = VFS; }} }}
         LOG {{ Default_Log_Level = EVENT; {calls} }}"
    )
}
