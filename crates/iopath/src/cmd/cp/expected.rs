//! How many bytes a copy will move, for the display of progress.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use crate::app::App;
use crate::session::Session;

/// Bytes of content below a path of the host, symbolic links not followed but at the path itself.
/// What cannot be read counts for nothing: the copy reports it.
pub fn of_host(path: &Path) -> u64 {
    let Ok(top) = path.metadata() else { return 0 };
    let mut bytes = content(&top);
    let mut dirs: Vec<PathBuf> = top.is_dir().then(|| path.to_owned()).into_iter().collect();
    while let Some(dir) = dirs.pop() {
        for entry in dir.read_dir().into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            bytes += content(&meta);
            if meta.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    bytes
}

fn content(meta: &Metadata) -> u64 {
    if meta.is_file() { meta.len() } else { 0 }
}

/// Bytes below a path of an image, where no walk is needed: of a file, and of the whole.
pub fn of_image(app: &mut App, session: &Session, path: &[u8]) -> Option<u64> {
    let attr = session.names.stat(app.cx, path).ok()?;
    if !attr.is_dir() {
        return Some(attr.size);
    }
    let stat = session.fs.statfs(app.cx).ok()?;
    let used = stat.blocks.checked_sub(stat.blocks_free)?;
    (attr.ino == session.fs.root()).then(|| used * u64::from(stat.block_size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_the_host_is_summed_without_following_links() {
        let bed = tempfile::tempdir().expect("a directory");
        let dir = bed.path().join("a/b");
        std::fs::create_dir_all(&dir).expect("directories");
        std::fs::write(dir.join("one"), [1; 1000]).expect("a file");
        std::fs::write(bed.path().join("two"), [2; 23]).expect("a file");
        std::os::unix::fs::symlink("..", dir.join("circle")).expect("a link");
        assert_eq!(of_host(bed.path()), 1023);
        assert_eq!(of_host(&dir.join("one")), 1000);
        assert_eq!(of_host(&dir.join("none")), 0);
    }
}
