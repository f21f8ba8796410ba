//! Work on everything below a place.

use anyhow::Result;
use base::Ino;
use vfs::Attr;
use vfs::walk::{Reached, descend};

use crate::app::{App, at};
use crate::out::Progress;
use crate::session::Session;

/// A directory that is being walked.
struct Level {
    /// Length of the path outside of it.
    outside: usize,
    names: std::vec::IntoIter<(Vec<u8>, Ino)>,
}

/// What is done at a path.
pub type Work<'w> = dyn FnMut(&mut App, &[u8], &Attr) -> Result<()> + 'w;

/// Runs `work` on what is at `path` and on everything below it, names sorted, directories before
/// what they hold. What fails is reported, and the rest follows; returns whether nothing failed.
/// May park.
///
/// # Errors
/// The output is closed.
pub fn each(
    app: &mut App,
    session: &Session,
    path: &[u8],
    top: &Attr,
    work: &mut Work,
) -> Result<bool> {
    let names = session.names_below(app, top);
    let mut progress = app.out.progress_of_names("reading", names);
    let done = walk(app, session, path, top, &mut progress, work);
    progress.finish();
    done
}

fn walk(
    app: &mut App,
    session: &Session,
    path: &[u8],
    top: &Attr,
    progress: &mut Progress,
    work: &mut Work,
) -> Result<bool> {
    let mut reached = Reached::above(app.cx, &*session.fs, top.ino);
    let (mut path, mut levels, mut good) = (path.to_vec(), Vec::<Level>::new(), true);
    let mut next = Some((path.len(), Ok(top.clone())));
    loop {
        if let Some((outside, attr)) = next.take() {
            let done = attr.and_then(|attr: Attr| {
                work(app, &path, &attr)?;
                progress.add(1, attr.blocks * 512);
                if !attr.is_dir() {
                    return Ok(None);
                }
                let entered = reached.enter(attr.ino, || session.place(&path));
                entered.map_err(|message| anyhow::anyhow!(message))?;
                names(app, session, attr.ino, &path).map(Some)
            });
            match done {
                Ok(Some(names)) => levels.push(Level { outside, names: names.into_iter() }),
                Ok(None) => path.truncate(outside),
                Err(error) if crate::out::is_closed_pipe(&error) => return Err(error),
                Err(error) => {
                    app.out.problem(format!("{error:#}"));
                    good = false;
                    path.truncate(outside);
                }
            }
        }
        let Some(level) = levels.last_mut() else { return Ok(good) };
        let Some((name, ino)) = level.names.next() else {
            path.truncate(level.outside);
            levels.pop();
            continue;
        };
        let outside = descend(&mut path, &name);
        // The place is put into words only where it is needed: paths may be long.
        let attr = session.fs.getattr(app.cx, ino);
        let attr = attr.map_err(|errno| at(session.place(&path))(errno));
        next = Some((outside, attr));
    }
}

/// Runs `work` on what is at `path`, and with `below` on everything below it too, as [`each`] does.
/// Returns whether nothing failed. May park.
///
/// # Errors
/// As [`each`]; of `work`, if it is asked of `path` alone.
pub fn each_if(
    app: &mut App,
    session: &Session,
    path: &[u8],
    top: &Attr,
    below: bool,
    work: &mut Work,
) -> Result<bool> {
    if below { each(app, session, path, top, work) } else { work(app, path, top).map(|()| true) }
}

/// The names of a directory with their inodes, sorted by bytes, without `.` and `..`. May park.
///
/// # Errors
/// Names the place that cannot be read.
pub fn names(
    app: &mut App,
    session: &Session,
    dir: Ino,
    path: &[u8],
) -> Result<Vec<(Vec<u8>, Ino)>> {
    let mut names = Vec::new();
    let listed = session.fs.readdir(app.cx, dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((entry.name.to_vec(), entry.ino));
        }
        true
    });
    listed.map_err(|errno| at(session.place(path))(errno))?;
    names.sort();
    Ok(names)
}
