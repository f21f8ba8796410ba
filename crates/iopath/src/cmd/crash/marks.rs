//! Marks from other processes while something is recorded: a socket and a FIFO.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use crash::host::own_name;
use crash::{Recorder, mark};
use rt::{Cx, JoinHandle};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// The places at which a recording is going to take marks: a socket and a FIFO.
pub struct Places {
    socket: PathBuf,
    listener: UnixListener,
    fifo: PathBuf,
    /// For reading and writing: it has no end while it is open here.
    lines: File,
}

impl Places {
    /// Makes them. What a recording that was killed has left there is replaced.
    ///
    /// # Errors
    /// They cannot be made: another recording takes marks there, or there is something else.
    pub fn make(socket: PathBuf, fifo: PathBuf) -> Result<Places> {
        let shown = |path: &Path| path.display().to_string();
        let listener = device::nbd::bind(&socket).with_context(|| shown(&socket))?;
        open_to_all(&socket)?;
        // The one beside it is ours then, too.
        if fifo.symlink_metadata().is_ok_and(|there| there.file_type().is_fifo()) {
            std::fs::remove_file(&fifo).with_context(|| shown(&fifo))?;
        }
        let made = make_fifo(&fifo);
        let lines = made.inspect_err(|_| {
            let _it_is_no_use = std::fs::remove_file(&socket);
        })?;
        Ok(Places { socket, listener, fifo, lines })
    }

    /// Takes marks from now on.
    pub fn begin(self, cx: &mut Cx, recorder: &Arc<Recorder>) -> Marks {
        let Places { socket, listener, fifo, lines } = self;
        let ended = Arc::new(AtomicBool::new(false));
        let listening = listen(cx, recorder, listener, ended.clone());
        // No other line is like it.
        let end = format!("\u{1}end of {}", own_name());
        let reading = read_fifo(cx, recorder, lines, end.clone());
        Marks { socket, fifo, ended, end, listening, reading }
    }
}

/// The places at which a recording takes marks, and the tasks that take them.
pub struct Marks {
    socket: PathBuf,
    fifo: PathBuf,
    /// No further clients.
    ended: Arc<AtomicBool>,
    /// The line that ends the marks of the FIFO.
    end: String,
    listening: JoinHandle<Result<()>>,
    reading: JoinHandle<Result<()>>,
}

impl Marks {
    /// Takes marks at a socket and at a FIFO, which are made.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn begin(
        cx: &mut Cx,
        recorder: &Arc<Recorder>,
        socket: PathBuf,
        fifo: PathBuf,
    ) -> Result<Marks> {
        Ok(Places::make(socket, fifo)?.begin(cx, recorder))
    }

    /// Gives a command the place where it may leave marks.
    pub fn name_to(&self, command: &mut Command) {
        command.env(mark::SOCKET, &self.socket).env(mark::FIFO, &self.fifo);
    }

    /// Takes what was written until now, and no more. Parks.
    ///
    /// # Errors
    /// A mark could not be taken.
    pub fn end(self, cx: &mut Cx) -> Result<()> {
        self.ended.store(true, Ordering::SeqCst);
        // It waits for a client.
        UnixStream::connect(&self.socket).context("ending the marks")?;
        self.listening.join(cx)?;
        // The reader may be at its line already; a second opener makes sure that this one is read.
        let mut fifo = File::options().write(true).open(&self.fifo).context("ending the marks")?;
        fifo.write_all(format!("{}\n", self.end).as_bytes()).context("ending the marks")?;
        self.reading.join(cx)?;
        for place in [self.socket, self.fifo] {
            std::fs::remove_file(&place).with_context(|| place.display().to_string())?;
        }
        Ok(())
    }
}

/// Makes a FIFO and opens it.
fn make_fifo(path: &Path) -> Result<File> {
    let shown = || path.display().to_string();
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).with_context(shown)?;
    open_to_all(path)?;
    File::options().read(true).write(true).open(path).with_context(shown)
}

/// Whoever comes to it may leave marks, whatever the umask is: a command may become another user.
fn open_to_all(path: &Path) -> Result<()> {
    let mode = std::fs::Permissions::from_mode(0o622);
    std::fs::set_permissions(path, mode).with_context(|| path.display().to_string())
}

/// Takes marks at a socket, and answers each when it is in the log.
fn listen(
    cx: &mut Cx,
    recorder: &Arc<Recorder>,
    listener: UnixListener,
    ended: Arc<AtomicBool>,
) -> JoinHandle<Result<()>> {
    let recorder = recorder.clone();
    cx.spawn("marks", move |cx| {
        loop {
            let (stream, _) = listener.accept().context("marks")?;
            if ended.load(Ordering::SeqCst) {
                return Ok(());
            }
            // One that says nothing keeps no other waiting.
            let recorder = recorder.clone();
            cx.spawn("marks of a client", move |_cx| {
                let _the_client_has_gone = take(&recorder, &stream);
            });
        }
    })
}

/// Takes the marks of one connection.
fn take(recorder: &Recorder, mut stream: &UnixStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        recorder.mark(line.trim_end_matches('\n'));
        stream.write_all(b"ok\n")?;
        line.clear();
    }
    Ok(())
}

/// Takes marks from a FIFO.
fn read_fifo(
    cx: &mut Cx,
    recorder: &Arc<Recorder>,
    file: File,
    end: String,
) -> JoinHandle<Result<()>> {
    let mut lines = BufReader::new(file);
    let recorder = recorder.clone();
    cx.spawn("marks of the fifo", move |_cx| {
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).context("marks")? == 0 {
                bail!("the fifo of marks has ended");
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            // The last mark may have no end of its line.
            match text.strip_suffix(&*end) {
                Some("") => return Ok(()),
                Some(text) => {
                    recorder.mark(text);
                    return Ok(());
                }
                None => recorder.mark(text),
            }
        }
    })
}
