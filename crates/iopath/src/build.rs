//! Building images: a file system of the right size, filled from a directory, an archive or a
//! container image, in one step, and the same every time.
//!
//! ```text
//!   input ── census ── fit ──┐
//!     │                      v
//!     └── copy ──> file system on a file without a name ──> its name
//! ```
//!
//! The source is read twice. First its names alone ([`census`]): how many blocks and inodes they
//! need ([`fit`]); an XFS of a given size does without. Then everything is copied into a new file
//! system ([`fill`]). That part lives in virtual time: the clock stands at the time of the build,
//! random numbers come from the UUID, and tasks take turns in a fixed order. So the image depends
//! on what comes, and not on the host.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base::Timespec;
use block::{Device, Queue, QueueConfig};
use rt::{Cred, World, WorldConfig};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::copy::image_sink::ImageSink;
use crate::copy::{self, Keep, Problems};
use crate::target::Target;

mod behind;
pub mod census;
pub mod fit;
pub mod input;
mod layers;
mod oci;
mod options;
pub mod output;
pub mod prototype;
pub mod recipe;
mod table;

pub use input::Input;
pub use options::Content;
pub use recipe::{Recipe, Report};

use behind::BehindDevice;
use census::Census;

/// Times that a build is tried with a larger size, where the first one was too small.
const TRIES: u32 = 4;

/// Where the environment names the time of the build.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Refuses a target whose requests end at times of their own: a server.
///
/// # Errors
/// It is one.
pub fn refuse_address(target: &Target) -> Result<()> {
    let is_address = target.path.to_str().is_some_and(|path| path.contains("://"));
    match is_address {
        true => bail!("{target}: -d builds files and block devices; build a file and copy that"),
        false => Ok(()),
    }
}

/// When an image is built, and what its random numbers come from.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time of the build.
    pub now: Timespec,
    /// It was named: nothing in the image may be later, or depend on anything else.
    pub pinned: bool,
}

impl Moment {
    /// By `SOURCE_DATE_EPOCH`, else now.
    ///
    /// # Errors
    /// The variable is no number of seconds.
    pub fn of_environment(app: &App) -> Result<Moment> {
        let Some(text) = std::env::var_os(EPOCH) else {
            return Ok(Moment { now: app.cx.realtime(), pinned: false });
        };
        let seconds = text.to_str().and_then(|text| text.parse::<u32>().ok());
        let seconds = seconds
            .with_context(|| format!("{EPOCH}={}: not seconds since 1970", text.display()))?;
        Ok(Moment { now: Timespec::from_secs(seconds.into()), pinned: true })
    }
}

/// What a build has made.
#[derive(Clone, Debug)]
pub struct Filled {
    /// The file system.
    pub report: Report,
    /// Names that were copied.
    pub names: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// What a source needs, and what the image's random numbers begin with.
pub struct Plan {
    /// What is to be copied.
    pub content: Content,
    /// How much that is; unknown where the source can be read but once, or nobody asked.
    pub census: Option<Census>,
    /// The UUID.
    pub uuid: [u8; 16],
}

/// Looks at what is to be copied, and decides on the UUID: the one given, one that follows from
/// the names, or a random one. It is counted where that is asked for, or says what the UUID is.
///
/// # Errors
/// The source cannot be read.
pub fn plan(
    app: &mut App,
    mut content: Content,
    moment: Moment,
    uuid: Option<[u8; 16]>,
    counted: bool,
) -> Result<Plan> {
    content.settle(app, moment)?;
    let asked = counted || moment.pinned && uuid.is_none();
    let census = match asked && !content.input.is_read_once() {
        true => Some(content.count(app)?),
        false => None,
    };
    let uuid = match (uuid, &census) {
        (Some(uuid), _) => uuid,
        (None, Some(census)) if moment.pinned => census.uuid(),
        (None, None) if moment.pinned => bail!(
            "with {EPOCH}, a stream that is read once needs a UUID (-U), or no --size, so that it \
             is read twice"
        ),
        (None, _) => app.cx.random_uuid(),
    };
    Ok(Plan { content, census, uuid })
}

/// Makes the file system of a recipe on a device and copies the content into it. Nothing is flushed
/// before the end. May park.
///
/// # Errors
/// The device failed; what could not be copied is in the message.
pub fn fill(
    app: &mut App,
    device: &Arc<dyn Device>,
    recipe: &Recipe,
    plan: &Plan,
    moment: Moment,
) -> Result<Filled> {
    let mut progress = app.out.progress("building");
    if let Some(census) = &plan.census {
        progress.expect(census.bytes);
    }
    let (written, behind) = BehindDevice::new(app.cx, device.clone());
    let written: Arc<dyn Device> = Arc::new(written);
    let seed = Sha256::digest([b"iopath build seed", &plan.uuid[..]].concat());
    let seed = u64::from_le_bytes(seed[..8].try_into().expect("eight bytes"));
    let config = WorldConfig { seed, epoch: moment.now, ..WorldConfig::default() };
    let mut world = World::new(WorldConfig { stack_size: 1 << 20, ..config });
    let limit = app.options.cache_size;
    let outer = &mut *app.cx;
    let built = world.run("build", |cx| {
        cx.set_cred(Cred { umask: 0, ..Cred::root() });
        let queue = Queue::new(cx.runtime(), written, QueueConfig::default())?;
        let report = recipe.make(cx, &queue)?;
        let fs = recipe.mount(cx, &queue, limit)?;
        let mut keep = plan.content.keep.clone();
        if let Some(exact) = keep.exact.as_mut() {
            Arc::make_mut(exact).block = report.block_size() as usize;
        }
        let mut problems = Problems::new();
        let sources = plan.content.sources(&keep)?;
        let mut sink = ImageSink::new(fs.clone(), fs.root(), String::new(), keep);
        for source in sources {
            problems.append(copy::run_between(outer, cx, source, &mut sink, &mut progress)?);
        }
        let closed = fs.unmount(cx);
        let lost = fs.lost();
        queue.drain(cx);
        match (lost.first, closed) {
            (Some(_), _) => bail!("{lost}"),
            (None, Err(errno)) => Err(anyhow!("writing out failed: {errno}")),
            (None, Ok(())) => Ok((report, problems)),
        }
    });
    let done = behind.end(app.cx);
    let (names, bytes) = progress.finish();
    let (report, problems) = built?;
    done.map_err(|error| anyhow!("writing out failed: {error}"))?;
    refuse_problems(app, &problems)?;
    Ok(Filled { report, names, bytes })
}

/// An image that lacks something is no image: the messages are printed.
fn refuse_problems(app: &App, problems: &Problems) -> Result<()> {
    let (messages, more) = problems.messages();
    let (last, others) = match messages.split_last() {
        None => return Ok(()),
        Some(split) => split,
    };
    others.iter().for_each(|message| app.out.problem(message));
    match problems.count() {
        1 => bail!("{last}"),
        count => bail!("{last}; {count} errors in all, {more} of them not shown"),
    }
}

/// Gives a device of a size.
pub type MakeDevice<'m> = dyn FnMut(&mut App, u64) -> Result<Arc<dyn Device>> + 'm;

/// Builds an image of the size that fits, with a share of its space left free: a larger one where
/// that was too small. `make` gives the device for a size.
///
/// # Errors
/// Those of [`fill`] and of `make`.
pub fn fill_to_fit(
    app: &mut App,
    recipe: &mut Recipe,
    plan: &Plan,
    moment: Moment,
    free_percent: f64,
    make: &mut MakeDevice,
) -> Result<Filled> {
    let census = plan.census.as_ref().context("a stream that is read once needs --size")?;
    let mut more = 0;
    for left in (0..TRIES).rev() {
        let bytes = fit::size(recipe, census, free_percent, more)?;
        let device = make(app, bytes)?;
        match fill(app, &device, recipe, plan, moment) {
            Err(error) if left > 0 && is_full(&error) => more = more * 2 + bytes / 16,
            other => return other,
        }
    }
    unreachable!("the last try is answered")
}

fn is_full(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("ENOSPC")
}

/// Builds in a file system of a given size.
///
/// # Errors
/// Those of [`fill`]; of what is too small, how much would do.
pub fn fill_fixed(
    app: &mut App,
    device: &Arc<dyn Device>,
    recipe: &mut Recipe,
    plan: &Plan,
    moment: Moment,
) -> Result<Filled> {
    if let Some(census) = &plan.census {
        fit::inodes(recipe, census, device.info().bytes())?;
    }
    let error = match fill(app, device, recipe, plan, moment) {
        Err(error) if is_full(&error) => error,
        other => return other,
    };
    let counted;
    let census = match &plan.census {
        Some(census) => census,
        None if plan.content.input.is_read_once() => return Err(error),
        None => {
            counted = plan.content.count(app)?;
            &counted
        }
    };
    Err(match fit::size(recipe, census, 0.0, 0) {
        Ok(bytes) => {
            let bytes = crate::text::size(bytes);
            error.context(format!("its content needs {bytes}; without --size it fits"))
        }
        Err(_) => error,
    })
}

/// The options of the command line that say what an image is built from.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SourceOptions {
    /// Fill it from this: a directory, a tar archive (also .gz, .zst, .xz), an OCI layout, what
    /// `docker save` writes, or - for an archive on standard input
    #[arg(long, value_name = "SOURCE")]
    pub source: Option<OsString>,
    /// In the names of a prototype a slash stands for a space.
    #[arg(skip)]
    pub slashes_are_spaces: bool,
    /// Attributes are left out.
    #[arg(skip)]
    pub no_xattrs: bool,
    /// With -d and without --size: the share of the space and of the inodes that stays free
    #[arg(long, value_name = "PERCENT", default_value = "10%", hide_default_value = true,
          value_parser = percent)]
    pub free: f64,
    /// With -d: everything belongs to this owner: UID:GID, or names of the host
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<String>,
    /// With -d: a table of owners, modes, attributes and devices: of fakeroot -s, of
    /// genext2fs -D, or lines `user FROM TO`, `group FROM TO`, `PATH UID GID MODE [NAME=VALUE]`
    #[arg(long, value_name = "FILE")]
    pub owner_map: Vec<std::path::PathBuf>,
    /// With -d: leave out names, or paths below the source, that match
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// With -d: names of one file become files of their own
    #[arg(long)]
    pub hard_dereference: bool,
    /// With -d, of an image for several machines: this one, e.g. linux/arm64
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<String>,
}

/// A share of at most 95 percent, with or without the sign.
///
/// # Errors
/// A sentence.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').parse().ok();
    match number {
        Some(number) if (0.0..=95.0).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is not a share from 0% to 95%")),
    }
}

/// What the options say about how a tree is copied.
///
/// # Errors
/// A table or a pattern is wrong.
pub(crate) fn keep_of(app: &mut App, options: &SourceOptions) -> Result<Keep> {
    let mut keep = Keep { exact: Some(Arc::default()), ..Keep::ALL };
    keep.links = !options.hard_dereference;
    keep.xattrs &= !options.no_xattrs;
    keep.exclude = crate::glob::set(&options.exclude).context("--exclude")?;
    if let Some(owner) = &options.owner {
        let owner = crate::owner::parse(app, None, owner).context("--owner")?;
        keep.chown = (owner.uid, owner.gid);
    }
    let exact = keep.exact.as_mut().map(Arc::make_mut).expect("it was just set");
    for path in &options.owner_map {
        let shown = || path.display().to_string();
        let text = std::fs::read(path).with_context(shown)?;
        exact.owners.read(&text).with_context(shown)?;
    }
    Ok(keep)
}
