//! The project's own sources, parsed: what `layers` and `tidy` look at.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// Every Rust file below a folder, in the order of the names.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The names of the crates' folders below `crates`, sorted.
pub fn crates() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("crates").context("crates")? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// One file of a crate's product.
pub struct Source {
    /// Path from the project's root.
    pub path: PathBuf,
    /// Its module, from the crate's root (empty for `lib.rs` and `main.rs`).
    pub module: Vec<String>,
    /// What it holds, tests included.
    pub tree: syn::File,
}

impl Source {
    /// Whether the file is a module of tests, by its name.
    pub fn is_test(&self) -> bool {
        self.module.last().is_some_and(|name| name == "tests" || name.ends_with("_tests"))
    }
}

/// Parses all files of a crate's `src`.
pub fn product(name: &str) -> Result<Vec<Source>> {
    let root = Path::new("crates").join(name).join("src");
    let mut sources = Vec::new();
    for path in files(&root)? {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let tree = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let below = path.strip_prefix(&root).context("a source outside of its crate")?;
        let mut module: Vec<String> =
            below.with_extension("").iter().map(|p| p.to_string_lossy().into_owned()).collect();
        if module.len() == 1 && ["lib", "main"].contains(&module[0].as_str()) {
            module.clear();
        }
        sources.push(Source { path, module, tree });
    }
    Ok(sources)
}

/// Whether an item exists in tests only.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|what| what.is_ident("test"))
    })
}

/// Calls `visit` with every function of a file that is not a test: its name and its signature.
pub fn functions(tree: &syn::File, visit: impl FnMut(&syn::Signature, usize)) {
    struct Functions<F>(F);
    impl<F: FnMut(&syn::Signature, usize)> Functions<F> {
        fn see(&mut self, signature: &syn::Signature, block: &syn::Block) {
            let first = signature.fn_token.span.start().line;
            let last = block.brace_token.span.close().end().line;
            (self.0)(signature, last + 1 - first);
        }
    }
    impl<'ast, F: FnMut(&syn::Signature, usize)> Visit<'ast> for Functions<F> {
        fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
            if !is_test(&module.attrs) {
                syn::visit::visit_item_mod(self, module);
            }
        }
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            if !is_test(&item.attrs) {
                self.see(&item.sig, &item.block);
                syn::visit::visit_item_fn(self, item);
            }
        }
        fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
            self.see(&item.sig, &item.block);
            syn::visit::visit_impl_item_fn(self, item);
        }
        fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
            if let Some(block) = &item.default {
                self.see(&item.sig, block);
            } else {
                (self.0)(&item.sig, 1);
            }
            syn::visit::visit_trait_item_fn(self, item);
        }
    }
    Functions(visit).visit_file(tree);
}
