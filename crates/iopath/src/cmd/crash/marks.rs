//! Marks from other processes while something is recorded: a socket and a FIFO.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use crash::{Recorder, mark};
use rt::{Cx, JoinHandle};

/// The places at which a recording takes marks, and the tasks that take them.
pub struct Marks {
    socket: PathBuf,
    fifo: PathBuf,
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
        let listening = listen(cx, recorder, &socket)?;
        let reading = read_fifo(cx, recorder, &fifo)?;
        Ok(Marks { socket, fifo, listening, reading })
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
        mark::mark_at(&self.socket, END).context("ending the marks")?;
        self.listening.join(cx)?;
        // The reader may be at its line already; a second opener makes sure that this one is read.
        std::fs::OpenOptions::new()
            .write(true)
            .open(&self.fifo)
            .and_then(|mut fifo| fifo.write_all(format!("{END}\n").as_bytes()))
            .context("ending the marks")?;
        self.reading.join(cx)?;
        for place in [self.socket, self.fifo] {
            std::fs::remove_file(&place).with_context(|| place.display().to_string())?;
        }
        Ok(())
    }
}

/// The line that ends the marks.
const END: &str = "\u{1}end of the recording";

/// Takes marks at a socket, and answers each when it is in the log.
fn listen(cx: &mut Cx, recorder: &Arc<Recorder>, path: &Path) -> Result<JoinHandle<Result<()>>> {
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    let recorder = recorder.clone();
    Ok(cx.spawn("marks", move |_cx| {
        loop {
            let (stream, _) = listener.accept().context("marks")?;
            if take(&recorder, &stream).unwrap_or(false) {
                return Ok(());
            }
        }
    }))
}

/// Takes the marks of one connection; true at the last one of all.
fn take(recorder: &Recorder, mut stream: &UnixStream) -> std::io::Result<bool> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let text = line.trim_end_matches('\n');
        let end = text == END;
        if !end {
            recorder.mark(text);
        }
        stream.write_all(b"ok\n")?;
        if end {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

/// Takes marks from a FIFO.
fn read_fifo(cx: &mut Cx, recorder: &Arc<Recorder>, path: &Path) -> Result<JoinHandle<Result<()>>> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let shown = || path.display().to_string();
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o622), 0).with_context(shown)?;
    // For reading and writing: it has no end while it is open here.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    let mut lines = BufReader::new(file.with_context(shown)?);
    let recorder = recorder.clone();
    Ok(cx.spawn("marks of the fifo", move |_cx| {
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).context("marks")? == 0 {
                bail!("the fifo of marks has ended");
            }
            let text = String::from_utf8_lossy(&line);
            match text.trim_end_matches('\n') {
                END => return Ok(()),
                text => recorder.mark(text),
            }
        }
    }))
}
