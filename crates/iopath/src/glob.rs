//! Wildcards: in places inside images, where no shell can expand them, and in `--exclude`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

use crate::app::App;
use crate::session::Session;
use crate::target::TargetPath;

/// A set of patterns; none where there are none. `*` and `?` match no slash.
///
/// # Errors
/// A pattern is none.
pub fn set(patterns: &[String]) -> Result<Option<Arc<GlobSet>>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.trim_start_matches('/');
        let pattern = if pattern.len() > 1 { pattern.trim_end_matches('/') } else { pattern };
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| anyhow!("`{pattern}`: {}", error.kind()))?);
    }
    Ok(Some(Arc::new(set.build().map_err(|error| anyhow!("{error}"))?)))
}

/// A matcher of one name.
///
/// # Errors
/// The pattern is none.
pub fn name(pattern: &str, any_case: bool) -> Result<GlobMatcher> {
    let glob = GlobBuilder::new(pattern).case_insensitive(any_case).build();
    Ok(glob.map_err(|error| anyhow!("`{pattern}`: {}", error.kind()))?.compile_matcher())
}

/// Whether a path has wildcards.
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|b| b"*?[".contains(b))
}

/// The paths of an image that a path with wildcards stands for, sorted, as sh(1) does it: names
/// that begin with a dot are matched by such patterns alone, and what matches nothing stays as it
/// is. With `--no-glob` no path has any.
pub fn expand(app: &mut App, session: &Session, path: &[u8]) -> Vec<Vec<u8>> {
    if app.options.no_glob || !is_pattern(path) || session.names.lstat(app.cx, path).is_ok() {
        return vec![path.to_vec()];
    }
    let mut found: Vec<Vec<u8>> = vec![Vec::new()];
    for part in path.split(|&b| b == b'/').filter(|part| !part.is_empty()) {
        let matcher = std::str::from_utf8(part).ok().filter(|_| is_pattern(part));
        let matcher = matcher.and_then(|pattern| name(pattern, false).ok());
        let mut next = Vec::new();
        for above in found {
            let join = |name: &[u8]| [&above[..], b"/", name].concat();
            let Some(matcher) = &matcher else {
                next.push(join(part));
                continue;
            };
            let dir: &[u8] = if above.is_empty() { b"/" } else { &above };
            let names = session.names.list(app.cx, dir).unwrap_or_default();
            let fits = |name: &[u8]| {
                let hidden = name.starts_with(b".") && !part.starts_with(b".");
                let special = name == b"." || name == b"..";
                !hidden && !special && matcher.is_match(OsStr::from_bytes(name))
            };
            let names = names.iter().map(|(name, _)| &name[..]).filter(|name| fits(name));
            next.extend(names.map(join));
        }
        found = next;
    }
    found.retain(|path| session.names.lstat(app.cx, path).is_ok());
    found.sort();
    match found.is_empty() {
        true => vec![path.to_vec()],
        false => found,
    }
}

/// The places of one target that a place with wildcards stands for.
pub fn places(app: &mut App, session: &Session, place: &TargetPath) -> Vec<TargetPath> {
    let paths = expand(app, session, &place.path);
    paths.into_iter().map(|path| TargetPath { target: place.target.clone(), path }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_below_a_slash() {
        let set = set(&["*.o".into(), "/a/b*".into(), "cache/".into()]).unwrap().unwrap();
        for (path, fits) in
            [("x.o", true), ("a/x.o", false), ("a/bc", true), ("a/b/c", false), ("cache", true)]
        {
            assert_eq!(set.is_match(path), fits, "{path}");
        }
        assert!(super::set(&[]).unwrap().is_none() && super::set(&["[".into()]).is_err());
        assert!(is_pattern(b"/a/*.gz") && !is_pattern(b"/a/b.gz"));
    }
}
