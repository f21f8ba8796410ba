//! What the library has, what the header declares, and what the shared library exports.

use std::path::Path;

use iopath_capi as _;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of functions in front of `end`, a line each, sorted.
fn names<'a>(lines: impl Iterator<Item = &'a str>, end: char) -> Vec<String> {
    let names = lines.filter_map(|line| line.split_once(end)?.0.rsplit([' ', '*']).next());
    let mut names: Vec<_> =
        names.filter(|name| name.starts_with("iopath_")).map(String::from).collect();
    names.sort_unstable();
    names
}

/// Goal: no function is forgotten in the header or in the list of versions, and none is left over.
#[test]
fn source_header_and_map_have_the_same_functions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = read(&folder.join("include/iopath.h"));
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/']));
    let map = names(read(&folder.join("iopath.map")).lines(), ';');
    let mut source = Vec::new();
    for entry in std::fs::read_dir(folder.join("src")).unwrap() {
        let text = read(&entry.unwrap().path());
        for function in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = function.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
            source.push(name.unwrap().to_owned());
        }
    }
    source.sort_unstable();
    assert_eq!(source, map);
    assert_eq!(names(declared, '('), map);
}
