//! `cp`: files and trees between the host, images and archives.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use ext4::Ext4;
use serde_json::json;

use crate::app::App;
use crate::confine::{self, Needs, Work};
use crate::copy::decompress;
use crate::copy::host_sink::HostSink;
use crate::copy::host_source::HostSource;
use crate::copy::image_sink::ImageSink;
use crate::copy::image_source::ImageSource;
use crate::copy::tar_sink::TarSink;
use crate::copy::tar_source::TarSource;
use crate::copy::{self, Existing, Follow, Keep, Links, Made, Problems, Sink, Source};
use crate::out::Progress;
use crate::session::{self, Session};
use crate::target::{Side, Target, TargetPath};
use crate::{glob, owner};

pub(super) mod destination;
mod expected;

use destination::{Spot, in_image, on_host, own_name, refuse_itself};

/// Copy files and trees between the host, images and tar archives
#[derive(Args, Default)]
#[command(after_help = "\
With several sources, or a directory as destination, names go into it. A source that ends
with /. and the root of an image give their content, not a name of their own. As with cp(1)
a file that exists is written into, and keeps its mode and owner without -a or -p.
A host path that contains :/ is written ./a:/b. Holes stay holes. Wildcards in places are
ours to expand: quote them. - is standard input or output: a tar archive with -r, -a or
--tar, else the content of one file.
With --direct the content of large files in images goes past our page cache, too.

Examples:
  iopath cp motd disk.img:/etc/motd
  iopath cp -a ./tree disk.img:/          makes /tree
  iopath cp -a ./tree/. disk.img:/        puts what is in it into /
  iopath cp -a disk.img:/ ./out
  iopath cp 'disk.img:/var/log/*.gz' logs
  iopath cp -a old.img:/home new.img:/
  iopath cp -a tree.tar.zst: disk.img:/
  iopath cp -a - disk.img:/ < tree.tgz
  iopath cp -a disk.img:/etc - | tar -t
  date | iopath cp - disk.img:/etc/built
  iopath cp -r --verity bin disk.img:/usr")]
pub struct Options {
    /// Sources, then the destination: host path, TARGET:/path, FILE.tar: or -
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Copy directories with everything below them
    #[arg(short, short_alias = 'R', long)]
    recursive: bool,
    /// Keep everything: -r -d, owners, modes, times, attributes, ACLs, hard links
    #[arg(short, long)]
    archive: bool,
    /// Follow all symlinks of the sources
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "named"])]
    dereference: bool,
    /// Follow no symlink of the sources
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "named"])]
    no_dereference: bool,
    /// Follow symlinks that are sources themselves
    #[arg(short = 'H', overrides_with_all = ["dereference", "no_dereference"])]
    named: bool,
    /// Follow no symlink, and keep hard links
    #[arg(short = 'd')]
    links: bool,
    /// Keep modes, owners and times
    #[arg(short = 'p')]
    preserve_usual: bool,
    /// Keep these: mode, ownership, timestamps, links, xattr, all
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1,
          require_equals = true, default_missing_value = "mode,ownership,timestamps")]
    preserve: Vec<Kept>,
    /// Do not keep these
    #[arg(long, value_name = "LIST", value_delimiter = ',', require_equals = true)]
    no_preserve: Vec<Kept>,
    /// Do not replace files that exist
    #[arg(short, long)]
    no_clobber: bool,
    /// Replace only files that are older than their source
    #[arg(short, long)]
    update: bool,
    /// If a file cannot be opened, remove it and try again
    #[arg(short, long)]
    force: bool,
    /// Remove each existing file before its copy is made
    #[arg(long)]
    remove_destination: bool,
    /// Do not leave the host file system of the source
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Treat the destination as a file, not as a directory to copy into
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Copy all PATHs into this directory
    #[arg(short = 't', long, value_name = "DIRECTORY")]
    target_directory: Option<OsString>,
    /// Leave out names, or paths below the source, that match
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Owner of the copies: UID, USER:GROUP, .. by the names of the destination
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Mode of the copies, as chmod(1) takes it
    #[arg(long, value_name = "MODE")]
    chmod: Option<String>,
    /// Host paths are tar archives, whatever their names
    #[arg(long)]
    tar: bool,
    /// Give each copy verity (ext4 image with that feature): its content is fixed then
    #[arg(long)]
    verity: bool,
    /// Share the blocks of files instead of copying them: both sides in one XFS image
    #[arg(long)]
    reflink: bool,
}

impl Options {
    /// Names go into this directory, where there is one.
    pub(super) fn into(directory: Option<OsString>) -> Options {
        Options { target_directory: directory, ..Options::default() }
    }
}

/// What `--preserve` names.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// Permission bits and ACLs.
    Mode,
    /// Owner and group.
    Ownership,
    /// Times.
    Timestamps,
    /// Hard links.
    Links,
    /// Extended attributes.
    Xattr,
    /// Security labels: those of `xattr`.
    Context,
    /// All of them.
    All,
}

/// What is kept, and how, by the options.
fn keep(app: &App, options: &Options) -> Result<Keep> {
    let archive = options.archive;
    let asked = |what: Kept| {
        let usual = matches!(what, Kept::Mode | Kept::Ownership | Kept::Timestamps);
        let named = |list: &[Kept]| list.contains(&what) || list.contains(&Kept::All);
        let yes = archive
            || usual && options.preserve_usual
            || what == Kept::Links && options.links
            || named(&options.preserve);
        yes && !named(&options.no_preserve)
    };
    let recursive = options.recursive || archive;
    let follow = match options {
        Options { dereference: true, .. } => Follow::Always,
        Options { named: true, .. } => Follow::Named,
        Options { no_dereference: true, .. } | Options { links: true, .. } => Follow::Never,
        _ if recursive => Follow::Never,
        _ => Follow::Always,
    };
    let existing = match options {
        Options { no_clobber: true, .. } => Existing::Leave,
        Options { update: true, .. } => Existing::Update,
        Options { remove_destination: true, .. } => Existing::Remove,
        _ => Existing::Write,
    };
    if let Some(mode) = &options.chmod {
        let checked = crate::text::parse_mode(mode, 0, false, 0);
        checked.map_err(|text| anyhow::anyhow!("--chmod: {text}"))?;
    }
    Ok(Keep {
        recursive,
        mode: asked(Kept::Mode),
        plain: options.no_preserve.iter().any(|kept| matches!(kept, Kept::Mode | Kept::All)),
        owner: asked(Kept::Ownership),
        times: asked(Kept::Timestamps),
        links: asked(Kept::Links),
        xattrs: asked(Kept::Xattr),
        direct: app.options.direct,
        follow,
        existing,
        force: options.force,
        one_file_system: options.one_file_system,
        exclude: glob::set(&options.exclude).context("--exclude")?,
        chmod: options.chmod.as_deref().map(Into::into),
        ..Keep::CONTENT
    })
}

/// Runs `cp`.
///
/// # Errors
/// What ended the copy, with its place. One name that cannot be read or written does not: it is
/// reported, the rest goes on, and the answer is failure.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let keep = keep(app, options)?;
    let (destination, sources) = match &options.target_directory {
        Some(directory) => (directory, &options.paths[..]),
        None => options.paths.split_last().context("no destination")?,
    };
    if sources.is_empty() {
        bail!("{}: give a destination behind it", destination.display());
    }
    let side = |path: &OsString, standard: &str| {
        let side = Side::parse(path, options.tar, keep.recursive)?;
        Ok(if side == Side::Standard { Side::Host(standard.into()) } else { side })
    };
    let destination = side(destination, "/dev/stdout")?;
    let sources = sources.iter().map(|path| side(path, "/dev/stdin"));
    let sources: Vec<Side> = sources.collect::<Result<_>>()?;
    let only_hosts = sources.iter().all(|side| !matches!(side, Side::Image(_)));
    if only_hosts && !matches!(destination, Side::Image(_)) {
        bail!("{destination}: neither side is an image; use cp(1) or tar(1) for that");
    }
    if options.reflink {
        check_reflink(&sources, &destination)?;
    }
    if options.verity && !matches!(destination, Side::Image(_)) {
        bail!("{destination}: --verity is for files of an ext4 image, and this is none");
    }
    confine::enter(app, needs(&sources, &destination, &keep))?;
    let mounts = Mounts { sessions: Vec::new(), reflink: options.reflink };
    carry(app, mounts, keep, sources, &destination, options)
}

/// Copies, and closes the images.
///
/// # Errors
/// As [`run`].
pub(super) fn carry(
    app: &mut App,
    mounts: Mounts,
    keep: Keep,
    sources: Vec<Side>,
    destination: &Side,
    options: &Options,
) -> Result<ExitCode> {
    let progress = app.out.progress("copying");
    let (made, links, problems) = (Made::default(), Links::default(), Problems::new());
    let mut copying = Copying { mounts, keep, progress, made, links, problems, verity: None };
    let result = copying.all(app, sources, destination, options);
    let closed = copying.mounts.close(app);
    let (names, bytes) = copying.progress.finish();
    result?;
    closed?;
    let problems = copying.problems;
    problems.show(&app.out);
    if app.out.json {
        let count = problems.count();
        app.out.document(&json!({ "names": names, "bytes": bytes, "errors": count }))?;
    }
    Ok(if problems.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the copy needs of the host.
pub(super) fn needs(sources: &[Side], destination: &Side, keep: &Keep) -> Needs {
    let mut needs = Needs::default();
    for source in sources {
        match source {
            Side::Image(place) => needs.word(place.target.to_string().as_ref(), Work::Look),
            Side::Archive(Some(path)) => needs.read(path),
            // Symlinks lead anywhere.
            Side::Host(_) if keep.follow == Follow::Always && keep.recursive => needs.read("/"),
            Side::Host(path) => {
                needs.read(path);
                // It is opened from its folder.
                needs.list(confine::folder_of(path));
            }
            Side::Archive(None) | Side::Standard => {}
        }
    }
    match destination {
        Side::Image(place) => needs.word(place.target.to_string().as_ref(), Work::Change),
        Side::Host(path) | Side::Archive(Some(path)) => {
            let folder = confine::folder_of(path);
            needs.write(path);
            // It is opened from its folder.
            needs.list(folder);
            if folder != Path::new("/dev") {
                needs.make(if path.is_dir() { path } else { folder });
                needs.copies_out();
            }
        }
        Side::Archive(None) | Side::Standard => {}
    }
    // The names of owners.
    ["/etc/passwd", "/etc/group"].into_iter().for_each(|file| needs.read(file));
    needs
}

/// The images of this command, each mounted once.
#[derive(Default)]
pub(super) struct Mounts {
    pub(super) sessions: Vec<Session>,
    /// Files share their blocks with their sources.
    reflink: bool,
}

/// Blocks are shared within one file system.
fn check_reflink(sources: &[Side], destination: &Side) -> Result<()> {
    let Side::Image(to) = destination else {
        bail!("{destination}: --reflink shares blocks within one image, and this is none");
    };
    for side in sources {
        match side {
            Side::Image(from) if from.target == to.target => {}
            other => bail!("{other}: --reflink shares blocks within one image: {}", to.target),
        }
    }
    Ok(())
}

impl Mounts {
    /// The number of a mounted image.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub(super) fn open(&mut self, app: &mut App, target: &Target, write: bool) -> Result<usize> {
        if let Some(index) = self.sessions.iter().position(|session| session.target == *target) {
            return Ok(index);
        }
        self.sessions.push(session::open(app, target, write)?);
        Ok(self.sessions.len() - 1)
    }

    /// Unmounts all.
    ///
    /// # Errors
    /// The first that fails.
    pub(super) fn close(&mut self, app: &mut App) -> Result<()> {
        let mut result = Ok(());
        for session in self.sessions.drain(..) {
            let closed = session::close(app, session);
            result = result.and(closed);
        }
        result
    }
}

/// A running copy.
struct Copying {
    mounts: Mounts,
    keep: Keep,
    progress: Progress,
    made: Made,
    links: Links,
    problems: Problems,
    /// The destination, where files get verity.
    verity: Option<Arc<Ext4>>,
}

impl Copying {
    fn all(
        &mut self,
        app: &mut App,
        sources: Vec<Side>,
        destination: &Side,
        options: &Options,
    ) -> Result<()> {
        // The destination first: an image that is also a source must be mounted for writing.
        let session = match destination {
            Side::Image(place) => Some(self.mounts.open(app, &place.target, true)?),
            _ => None,
        };
        if let Some(index) = session.filter(|_| options.verity) {
            self.verity = self.mounts.sessions[index].ext.clone().filter(|fs| fs.has_verity());
            if self.verity.is_none() {
                bail!("{destination}: no feature verity here; `iopath mkfs -O verity` makes it");
            }
        }
        if let Some(owner) = &options.owner {
            let session = session.map(|index| &self.mounts.sessions[index]);
            let owner = owner::parse(app, session, owner).context("--owner")?;
            // The part that is not named is kept, or that of the one who makes files.
            let rest = |id: Option<u32>| id.or((!self.keep.owner).then_some(0));
            (self.keep.chown, self.keep.owner) = ((rest(owner.uid), rest(owner.gid)), true);
        }
        let sources = self.sources(app, sources)?;
        let into = match () {
            () if options.no_target_directory => Some(false),
            () if options.target_directory.is_some() || sources.len() > 1 => Some(true),
            () => None,
        };
        if into == Some(false) && sources.len() > 1 {
            bail!("{destination}: with -T there is one source");
        }
        if self.progress.is_shown()
            && let Some(bytes) = self.expected(app, &sources)
        {
            self.progress.expect(bytes);
        }
        match destination {
            Side::Image(place) => {
                let index = session.expect("it was opened");
                for side in &sources {
                    self.place_in_image(app, index, place, side, into)?;
                }
            }
            Side::Host(path) => {
                for side in &sources {
                    let spot = on_host(path, side, into)?;
                    self.place_on_host(app, &spot, side)?;
                }
            }
            Side::Archive(_) | Side::Standard => {
                self.place_in_archive(app, destination, &sources)?
            }
        }
        Ok(())
    }

    /// Bytes that the sources hold, where it can be known without reading them.
    fn expected(&mut self, app: &mut App, sources: &[Side]) -> Option<u64> {
        let mut bytes = 0;
        for side in sources {
            bytes += match side {
                Side::Host(path) | Side::Archive(Some(path)) => expected::of_host(path),
                Side::Archive(None) | Side::Standard => return None,
                Side::Image(place) => {
                    let index = self.mounts.open(app, &place.target, false).ok()?;
                    expected::of_image(app, &self.mounts.sessions[index], &place.path)?
                }
            };
        }
        Some(bytes)
    }

    /// The sources with their wildcards expanded, each once.
    fn sources(&mut self, app: &mut App, sides: Vec<Side>) -> Result<Vec<Side>> {
        let mut sources: Vec<Side> = Vec::new();
        for side in sides {
            let mut found = vec![side];
            if let Side::Image(place) = &found[0]
                && glob::is_pattern(&place.path)
            {
                let place = place.clone();
                let index = self.mounts.open(app, &place.target, false)?;
                let paths = glob::expand(app, &self.mounts.sessions[index], &place.path);
                let side = |path| Side::Image(TargetPath { target: place.target.clone(), path });
                found = paths.into_iter().map(side).collect();
            }
            for side in found {
                match sources.contains(&side) {
                    true => app.out.note(format!("iopath: {side}: was given more than once")),
                    false => sources.push(side),
                }
            }
        }
        Ok(sources)
    }

    fn place_in_image(
        &mut self,
        app: &mut App,
        index: usize,
        place: &TargetPath,
        side: &Side,
        into: Option<bool>,
    ) -> Result<()> {
        let session = &self.mounts.sessions[index];
        let spot = in_image(app, session, place, side, into)?;
        refuse_itself(app, session, side, &spot)?;
        let (fs, shown) = (session.fs.clone(), session.place(&spot.top));
        let keep = self.keep_for(side);
        let Some(source) = self.source(app, side, &spot, &keep)? else { return Ok(()) };
        let made = std::mem::take(&mut self.made);
        let sink = ImageSink::new(fs, spot.dir, shown, keep);
        let mut sink = sink.after(made, &spot.name, spot.slash).with_verity(self.verity.clone());
        self.carry(app, source, &mut sink)?;
        self.made = sink.into_made();
        Ok(())
    }

    /// Carries one source over.
    fn carry(&mut self, app: &mut App, source: Box<dyn Source>, sink: &mut dyn Sink) -> Result<()> {
        let (progress, links) = (&mut self.progress, &mut self.links);
        let problems = copy::run_after(app.cx, source, sink, progress, links)?;
        self.problems.append(problems);
        Ok(())
    }

    fn place_on_host(&mut self, app: &mut App, spot: &Spot, side: &Side) -> Result<()> {
        let keep = self.keep_for(side);
        let Some(source) = self.source(app, side, spot, &keep)? else { return Ok(()) };
        let made = std::mem::take(&mut self.made);
        let sink = HostSink::new(&spot.top_path(), keep)?;
        let mut sink = sink.after(made, &spot.name, spot.slash);
        self.carry(app, source, &mut sink)?;
        for (what, count) in sink.refused() {
            let top = spot.top_path();
            let top = top.display();
            app.out.note(format!("iopath: {top}: the host did not accept {count} {what}"));
        }
        self.made = sink.into_made();
        Ok(())
    }

    fn place_in_archive(
        &mut self,
        app: &mut App,
        destination: &Side,
        sources: &[Side],
    ) -> Result<()> {
        let Side::Archive(path) = destination else { return Ok(()) };
        let [side] = sources else { bail!("{destination}: an archive takes one source") };
        if path.as_ref().is_some_and(|path| path.extension().is_some_and(|end| end != "tar")) {
            bail!("{destination}: archives are written as they are; copy to - and compress that");
        }
        let spot = Spot::named(own_name(side).unwrap_or_default());
        let keep = self.keep_for(side);
        let Some(source) = self.source(app, side, &spot, &keep)? else { return Ok(()) };
        let out: Box<dyn Write> = match path {
            Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
            None => Box::new(io::stdout()),
        };
        let mut sink = TarSink::new(BufWriter::with_capacity(1 << 20, out), keep);
        self.carry(app, source, &mut sink)?;
        if sink.skipped() > 0 {
            let count = sink.skipped();
            app.out.note(format!("iopath: {count} sockets left out: archives cannot hold them"));
        }
        Ok(())
    }

    /// Archives are unpacked as tar(1) does it.
    fn keep_for(&self, side: &Side) -> Keep {
        let mut keep = self.keep.clone();
        if matches!(side, Side::Archive(_)) && keep.existing == Existing::Write {
            keep.existing = Existing::Archive;
        }
        keep
    }

    /// The source of a side, whose tree becomes a name in the destination; none where it cannot be
    /// read, which is noted.
    fn source(
        &mut self,
        app: &mut App,
        side: &Side,
        spot: &Spot,
        keep: &Keep,
    ) -> Result<Option<Box<dyn Source>>> {
        let (name, keep) = (spot.name.clone(), keep.clone());
        Ok(Some(match side {
            Side::Standard => return Ok(None),
            Side::Host(path) => Box::new(HostSource::new(path.clone(), name, keep)),
            Side::Image(place) => {
                let index = self.mounts.open(app, &place.target, false)?;
                let session = &self.mounts.sessions[index];
                let follow = place.path.ends_with(b"/") || keep.follow != Follow::Never;
                let root = match session.find(app, &place.path, follow) {
                    Ok(root) => root,
                    Err(error) => {
                        self.problems.report(format!("{error:#}"));
                        return Ok(None);
                    }
                };
                let source = ImageSource::new(session, &place.path, root, name, keep);
                let source = source.on_device(u64::MAX - index as u64);
                Box::new(if self.mounts.reflink { source.sharing() } else { source })
            }
            Side::Archive(path) => {
                let input: Box<dyn Read + Send> = match path {
                    Some(path) => {
                        Box::new(File::open(path).with_context(|| path.display().to_string())?)
                    }
                    None => Box::new(io::stdin()),
                };
                let input = decompress::unpacked(input).with_context(|| side.to_string())?;
                Box::new(TarSource::new(input, name, keep))
            }
        }))
    }
}
