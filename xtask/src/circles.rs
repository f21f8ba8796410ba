//! The rule of the folders: the modules at a crate's root use each other in one direction.
//!
//! A circle is allowed only where the things know each other by their nature: [`ALLOWED`] lists
//! these sets of modules, each with its reason. A set that is smaller now has to shrink there, too.

use crate::source::{self, Source};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// Modules of one crate that use each other in a circle.
struct Circle {
    krate: &'static str,
    modules: &'static [&'static str],
    /// Why they know each other.
    reason: &'static str,
}

const ALLOWED: &[Circle] = &[
    Circle {
        krate: "block",
        modules: &["device", "queue"],
        reason: "a queue sends requests to its device; the device completes them to their queue",
    },
    Circle {
        krate: "cache",
        modules: &["mapping", "page_cache", "writeback"],
        reason: "the page cache cleans the pages of its mappings, which take pages from it",
    },
    Circle {
        krate: "ext4",
        modules: &["attr", "evict"],
        reason: "the value of an attribute may be an inode of its own, which ends as others do",
    },
    Circle {
        krate: "iopath",
        modules: &["cli", "cmd"],
        reason: "the command line names each command's options; `man` prints the command line",
    },
    Circle {
        krate: "iopath",
        modules: &["storage", "volumes"],
        reason: "what lies on a storage is a volume, whose members are storages",
    },
    Circle {
        krate: "rt",
        modules: &["cx", "exit", "real", "runtime", "sync", "task", "timers", "world"],
        reason: "a task runs in a run time; what it waits for wakes it there",
    },
    Circle {
        krate: "xfs",
        modules: &["fs", "inode"],
        reason: "an inode knows its mount, and the mount keeps the inodes",
    },
    Circle {
        krate: "xfs",
        modules: &["buf", "log", "trans"],
        reason: "a buffer carries its log item; the log finishes intents in transactions",
    },
];

/// Modules and those that each of them names, with one place of each use.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Compares the circles between the modules at each crate's root with [`ALLOWED`].
pub fn check() -> Result<()> {
    let mut wrong = Vec::new();
    let mut left: Vec<&Circle> = ALLOWED.iter().collect();
    for name in source::crates()? {
        let uses = uses(&source::product(&name)?);
        for modules in circles(&uses) {
            let known = left.iter().position(|c| c.krate == name && modules == c.modules);
            match known {
                Some(at) => drop(left.swap_remove(at)),
                None => wrong.push(describe(&name, &modules, &uses)),
            }
        }
    }
    for gone in left {
        let Circle { krate, modules, reason } = gone;
        let modules = modules.join(", ");
        wrong.push(format!("{krate}: no circle any more: {modules} (its reason: {reason})"));
    }
    if !wrong.is_empty() {
        bail!(
            "circles between the folders of a crate differ from ALLOWED in \
             xtask/src/circles.rs:\n  {}",
            wrong.join("\n  ")
        );
    }
    Ok(())
}

/// Which module at the root names which other one.
fn uses(sources: &[Source]) -> Uses {
    let top: BTreeSet<String> =
        sources.iter().filter_map(|source| source.module.first().cloned()).collect();
    let root = sources.iter().find(|source| source.module.is_empty());
    let exports = root.map(|source| exports(&source.tree, &top)).unwrap_or_default();
    let mut uses = Uses::new();
    for source in sources {
        let Some(own) = source.module.first() else { continue };
        if source.is_test() {
            continue;
        }
        let mut names = Names { module: source.module.clone(), named: BTreeMap::new() };
        names.visit_file(&source.tree);
        for (name, line) in names.named {
            let target = if top.contains(&name) { Some(&name) } else { exports.get(&name) };
            let Some(target) = target.filter(|target| *target != own) else { continue };
            let place = format!("{name} in {}:{line}", source.path.display());
            uses.entry(own.clone()).or_default().entry(target.clone()).or_insert(place);
        }
    }
    uses
}

/// What the crate's root re-exports or imports, to the module that it comes from.
fn exports(tree: &syn::File, top: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for item in &tree.items {
        let syn::Item::Use(item) = item else { continue };
        let mut paths = Vec::new();
        leaves(&item.tree, &mut Vec::new(), &mut paths);
        for path in paths {
            let at = usize::from(["crate", "self"].contains(&path[0].as_str()));
            let (Some(first), Some(last)) = (path.get(at), path.last()) else { continue };
            if top.contains(first) {
                exports.insert(last.clone(), first.clone());
            }
        }
    }
    exports
}

/// All paths of a `use`, with the new name last where there is one.
fn leaves(tree: &syn::UseTree, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            leaves(&path.tree, prefix, paths);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|item| leaves(item, prefix, paths));
        }
        syn::UseTree::Name(name) => paths.push(with(prefix, name.ident.to_string())),
        syn::UseTree::Rename(name) => paths.push(with(prefix, name.rename.to_string())),
        syn::UseTree::Glob(_) => paths.push(with(prefix, "*".into())),
    }
}

fn with(prefix: &[String], last: String) -> Vec<String> {
    prefix.iter().cloned().chain([last]).collect()
}

/// Collects the names behind `crate::`, or behind as many `super::` as lead to the crate's root.
struct Names {
    module: Vec<String>,
    named: BTreeMap<String, usize>,
}

impl Names {
    fn see(&mut self, path: &[String], line: usize) {
        let up = path.iter().take_while(|part| *part == "super").count();
        let from_root = path.first().is_some_and(|part| part == "crate");
        let at = if from_root { 1 } else { up };
        if !from_root && (up == 0 || up != self.module.len()) {
            return;
        }
        if let Some(name) = path.get(at) {
            self.named.entry(name.clone()).or_insert(line);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if source::is_test(&module.attrs) {
            return;
        }
        self.module.push(module.ident.to_string());
        syn::visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if source::is_test(&item.attrs) {
            return;
        }
        let mut paths = Vec::new();
        leaves(&item.tree, &mut Vec::new(), &mut paths);
        for path in paths {
            self.see(&path, item.use_token.span.start().line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |s| s.ident.span().start().line);
        self.see(&parts, line);
        syn::visit::visit_path(self, path);
    }
}

/// Each set of modules that use each other in a circle, sorted.
fn circles(uses: &Uses) -> Vec<Vec<&str>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        uses.keys().map(|from| (from, reachable(uses, from))).collect();
    let mut seen = BTreeSet::new();
    let mut sets = Vec::new();
    for (from, far) in &reach {
        if !far.contains(*from) || !seen.insert(*from) {
            continue;
        }
        let back = |to: &&&String| reach.get(**to).is_some_and(|back| back.contains(*from));
        let set: Vec<&String> = far.iter().filter(back).copied().collect();
        seen.extend(set.iter().copied());
        sets.push(set.into_iter().map(String::as_str).collect());
    }
    sets
}

/// A circle with the uses inside of it, and one place of each.
fn describe(krate: &str, modules: &[&str], uses: &Uses) -> String {
    let mut text = format!("{krate}: {}", modules.join(", "));
    for from in modules {
        for (to, place) in uses.get(*from).into_iter().flatten() {
            if modules.contains(&to.as_str()) {
                text.push_str(&format!("\n    {from} -> {to} ({place})"));
            }
        }
    }
    text
}

fn reachable<'a>(uses: &'a Uses, from: &String) -> BTreeSet<&'a String> {
    let mut far = BTreeSet::new();
    let mut next: Vec<&String> = uses.get(from).into_iter().flat_map(|to| to.keys()).collect();
    while let Some(name) = next.pop() {
        if far.insert(name) {
            next.extend(uses.get(name).into_iter().flat_map(|to| to.keys()));
        }
    }
    far
}
