//! `top`: what a mount or a server is doing, in a terminal.

mod view;

use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow};
use base::Nanos;
use clap::Args;
use console::{Key, Term};
use fuse::Signals;
use rt::Cx;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use self::view::View;
use crate::app::App;
use crate::metrics::scrape::Scrape;
use crate::metrics::{ATTRIBUTE, Address};

/// Watch a mount or a server: operations, latencies, caches, journal, device
#[derive(Args)]
#[command(after_help = "\
What is watched runs with --metrics. Where the output is no terminal, and with --once, one
view is printed: of all since counting began. Else each view is of the time since the one
before it. The p99 is a bound: at most twice too high.

Keys: q or Escape ends it.

Exit status: 0 ended by a key, 1 nobody answers (any more), 128 + N ended by signal N.

Examples:
  iopath mount --metrics 9478 disk.img /mnt ; iopath top /mnt
  iopath top 9478
  iopath top --once --json /run/iopath.sock | jq .operations
  iopath top --json --interval 10 9478 >> log")]
pub struct Options {
    /// Directory that is mounted, or the place of the metrics: PORT, ADDRESS:PORT, path of a socket
    #[arg(value_name = "PLACE")]
    place: OsString,
    /// Print one view, of all since counting began
    #[arg(long)]
    once: bool,
    /// Time between two views
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    interval: u32,
}

/// How often the keys are looked at.
const KEY_WAIT: Nanos = Nanos::from_millis(50);

/// Runs `top`.
///
/// # Errors
/// Nobody answers.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let place = find(&options.place)?;
    let now = Scrape::of(&place)?;
    let began = now.value("start_time_seconds").unwrap_or_default();
    let since = app.cx.realtime();
    let first = View::new(&now, &Scrape::default(), since.sec as f64 - began);
    let shown = std::io::stdout().is_terminal() && !app.out.json;
    if options.once || !(shown || app.out.json) {
        print(app, &first)?;
        return Ok(ExitCode::SUCCESS);
    }
    let ended = Arc::new(AtomicBool::new(false));
    let term = Term::stdout();
    let _restored = shown.then(Modes::keep);
    if shown {
        watch_signals(app.cx);
        watch_keys(app.cx, &term, &ended);
        draw(&term, &first)?;
    }
    let (mut before, mut at) = (now, app.cx.now());
    while wait(app.cx, Nanos::from_secs(options.interval.into()), &ended) {
        let now = Scrape::of(&place)?;
        let moment = app.cx.now();
        let view = View::new(&now, &before, (moment - at).0 as f64 / 1e9);
        (before, at) = (now, moment);
        match shown {
            true => draw(&term, &view)?,
            false => print(app, &view)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The modes of the terminal, which come back when this is dropped: whoever waits for a key has
/// others set, and may still wait when the mount has ended.
struct Modes(Option<(File, Termios)>);

impl Modes {
    /// None where keys come from no terminal.
    fn keep() -> Modes {
        let terminal = File::open("/dev/tty").ok();
        Modes(terminal.and_then(|terminal| {
            let modes = tcgetattr(&terminal).ok()?;
            Some((terminal, modes))
        }))
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        if let Some((terminal, modes)) = &self.0 {
            let _gone_already = tcsetattr(terminal, OptionalActions::Drain, modes);
        }
    }
}

/// The place of the metrics: a mount names it.
fn find(place: &OsString) -> Result<Address> {
    let path = Path::new(place);
    let shown = path.display();
    let text = match path.is_dir() {
        true => {
            let mut value = vec![0; 4096];
            let name = str::from_utf8(ATTRIBUTE).unwrap_or_default();
            let length = rustix::fs::getxattr(path, name, &mut value[..]).map_err(|_| {
                anyhow!("{shown}: not a mount with metrics: iopath mount --metrics PLACE ..")
            })?;
            value.truncate(length);
            String::from_utf8(value).with_context(|| shown.to_string())?
        }
        false => shown.to_string(),
    };
    text.parse().map_err(|error: String| anyhow!(error))
}

/// Waits; false where the user has ended it.
fn wait(cx: &mut Cx, interval: Nanos, ended: &AtomicBool) -> bool {
    let until = cx.now() + interval;
    while cx.now() < until && !ended.load(Ordering::Relaxed) {
        cx.sleep(KEY_WAIT.min(until - cx.now()));
    }
    !ended.load(Ordering::Relaxed)
}

/// From now on a signal gives the terminal back before it ends the process. Call it before there is
/// any other thread.
fn watch_signals(cx: &mut Cx) {
    let (signals, modes) = (Signals::block(), Modes::keep());
    cx.spawn("signals", move |_cx| {
        let signal = signals.wait();
        drop(modes);
        std::process::exit(128 + signal as i32);
    });
}

fn watch_keys(cx: &mut Cx, term: &Term, ended: &Arc<AtomicBool>) {
    let (term, ended) = (term.clone(), ended.clone());
    cx.spawn("keys", move |_cx| {
        loop {
            match term.read_key_raw() {
                Ok(Key::Char('q' | 'Q') | Key::Escape) | Err(_) => break,
                // A signal as ever, but to the process: this thread holds it back. To wait for
                // another key would set the modes again that the signal gives back.
                Ok(Key::CtrlC) => match kill_process(getpid(), Signal::INT) {
                    Ok(()) => return,
                    Err(_) => break,
                },
                Ok(_) => {}
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// As many lines as the terminal has.
fn draw(term: &Term, view: &View) -> Result<()> {
    let (rows, columns) = term.size();
    term.clear_screen()?;
    for line in view.lines().iter().take(usize::from(rows).saturating_sub(1)) {
        term.write_line(&line.chars().take(columns.into()).collect::<String>())?;
    }
    Ok(())
}

fn print(app: &mut App, view: &View) -> Result<()> {
    match app.out.json {
        true => app.out.document(&view.document())?,
        false => view.lines().iter().try_for_each(|line| app.out.line(line))?,
    }
    Ok(app.out.flush()?)
}
