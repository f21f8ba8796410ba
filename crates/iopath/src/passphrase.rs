//! A passphrase that is typed on a terminal.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;

use base::LockedBytes;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// Most bytes of a line, as cryptsetup has it.
const MOST: usize = 512;
/// Control and C.
const INTERRUPT: u8 = 3;

/// Asks for a line without showing it. None where standard input or standard error is no terminal.
///
/// # Errors
/// The terminal fails, or the user gives up.
pub fn ask(question: &str) -> io::Result<Option<LockedBytes>> {
    let stdin = io::stdin();
    if !stdin.is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let quiet = Quiet::new(stdin.as_fd())?;
    eprint!("{question}");
    io::stderr().flush()?;
    let line = LockedBytes::read(&mut Line { ended: false }, MOST);
    drop(quiet);
    eprintln!();
    Ok(Some(line?))
}

/// A terminal that does not show what is typed, until this is dropped.
struct Quiet<'a> {
    terminal: std::os::fd::BorrowedFd<'a>,
    before: Termios,
}

impl Quiet<'_> {
    fn new(terminal: std::os::fd::BorrowedFd<'_>) -> io::Result<Quiet<'_>> {
        let before = tcgetattr(terminal)?;
        let mut now = before.clone();
        // Nothing stops this process while the terminal is quiet: an interrupt ends the line.
        now.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ISIG;
        now.local_modes |= LocalModes::ICANON;
        now.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(terminal, OptionalActions::Now, &now)?;
        Ok(Quiet { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _terminal_is_gone = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Standard input up to the end of a line, without a buffer that would keep a copy.
struct Line {
    ended: bool,
}

impl Read for Line {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(byte) = buf.get_mut(..1).filter(|_| !self.ended) else { return Ok(0) };
        let count = rustix::io::read(rustix::stdio::stdin(), byte)?;
        self.ended = count == 0 || buf[0] == b'\n';
        match buf[0] {
            _ if self.ended => Ok(0),
            INTERRUPT => Err(io::Error::other("interrupted")),
            _ => Ok(1),
        }
    }
}
