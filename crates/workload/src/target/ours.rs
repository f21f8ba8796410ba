//! Paths below a base directory of our own file system.

use base::Errno;
use rt::Cx;
use vfs::Namespace;

/// `BASE/path`, whether `path` begins with a slash or not.
pub fn join(base: &[u8], path: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(base.len() + path.len() + 1);
    joined.extend_from_slice(base);
    if !joined.ends_with(b"/") && !path.is_empty() {
        joined.push(b'/');
    }
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    joined.extend_from_slice(&path[start..]);
    joined
}

/// Makes every directory that leads to the last part of `path`.
pub fn make_path(cx: &mut Cx, ns: &Namespace, base: &[u8], path: &[u8]) -> Result<(), Errno> {
    let whole = join(base, path);
    let begin = base.len().max(1).min(whole.len());
    for (at, _) in whole.iter().enumerate().skip(begin).filter(|&(_, &byte)| byte == b'/') {
        match ns.mkdir(cx, &whole[..at], 0o777) {
            Ok(_) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_and_relative_paths_lie_below_the_base() {
        assert_eq!(join(b"/", b"/mnt/a"), b"/mnt/a");
        assert_eq!(join(b"/", b"mnt/a"), b"/mnt/a");
        assert_eq!(join(b"/base", b"//a"), b"/base/a");
        assert_eq!(join(b"/base", b""), b"/base");
    }
}
