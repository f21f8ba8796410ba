//! The crates as they would be published: packaged in their order, with what a reader of the
//! registry expects of each.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::run;

/// Keywords and categories of the registry: at most five.
const MOST: usize = 5;

/// A crate that is published.
struct Crate {
    name: String,
    needs: BTreeSet<String>,
}

/// Checks the metadata of all crates and packages each of them in its order; nothing is published.
/// With `verify` each package is compiled as a stranger would get it.
///
/// # Errors
/// Names everything that is missing.
pub fn dry_run(verify: bool) -> Result<()> {
    let crates = ordered(crates()?)?;
    eprintln!("    order: {}", names(&crates).join(" "));
    let mut arguments = vec!["package", "--allow-dirty", "--quiet"];
    if !verify {
        arguments.push("--no-verify");
    }
    for one in &crates {
        arguments.extend(["-p", one.name.as_str()]);
    }
    run::cargo(&arguments)?;
    eprintln!("    {} crates are packaged in target/package", crates.len());
    Ok(())
}

fn names(crates: &[Crate]) -> Vec<&str> {
    crates.iter().map(|one| one.name.as_str()).collect()
}

/// The crates that are published, with their metadata checked.
fn crates() -> Result<Vec<Crate>> {
    let metadata = run::metadata(false)?;
    let mut wrong = Vec::new();
    let mut crates = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        // `publish = false` is an empty list.
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        let name = package["name"].as_str().unwrap_or_default().to_owned();
        wrong.extend(missing(package).into_iter().map(|what| format!("{name}: {what}")));
        crates.push(Crate { name, needs: needs(package) });
    }
    if !wrong.is_empty() {
        bail!("not ready for the registry:\n  {}", wrong.join("\n  "));
    }
    Ok(crates)
}

/// The crates of ours that a package needs, but for its tests.
fn needs(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    let ours = all.filter(|one| !one["path"].is_null() && one["kind"] != "dev");
    ours.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

/// What the registry asks for, and what its readers do.
fn missing(package: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for field in ["description", "license", "repository", "readme", "rust_version", "documentation"]
    {
        if package[field].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("no {field}"));
        }
    }
    for field in ["keywords", "categories"] {
        let count = package[field].as_array().map_or(0, Vec::len);
        if !(1..=MOST).contains(&count) {
            wrong.push(format!("{count} {field}"));
        }
    }
    let all = package["dependencies"].as_array().into_iter().flatten();
    for one in all.filter(|one| !one["path"].is_null()) {
        let name = one["name"].as_str().unwrap_or_default();
        match (one["req"].as_str(), one["kind"] == "dev") {
            // It must not be in the registry: cargo leaves it out where it has no version.
            (Some("*"), true) => {}
            (Some(_), true) if name == "iopath-testkit" => {
                wrong.push(format!("{name} has a version; cargo would look for it"));
            }
            (Some("*"), false) => wrong.push(format!("{name} has no version")),
            _ => {}
        }
    }
    wrong
}

/// The crates in the order in which they can be published.
fn ordered(mut crates: Vec<Crate>) -> Result<Vec<Crate>> {
    let mut order: Vec<Crate> = Vec::new();
    while !crates.is_empty() {
        let is_there = |name: &String| order.iter().any(|one| one.name == *name);
        let (ready, rest): (Vec<Crate>, Vec<Crate>) =
            crates.into_iter().partition(|one| one.needs.iter().all(is_there));
        if ready.is_empty() {
            bail!("crates that are not published are needed by: {}", names(&rest).join(" "));
        }
        order.extend(ready);
        crates = rest;
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, needs: &[&str]) -> Crate {
        let needs = needs.iter().map(|name| name.to_string()).collect();
        Crate { name: name.into(), needs }
    }

    #[test]
    fn what_is_needed_comes_first() {
        let order = ordered(vec![one("c", &["a", "b"]), one("b", &["a"]), one("a", &[])]);
        assert_eq!(names(&order.expect("an order")), ["a", "b", "c"]);
        assert!(ordered(vec![one("a", &["private"])]).is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        let package = serde_json::json!({
            "description": "d", "license": "MIT", "repository": "r", "readme": null,
            "rust_version": "1.95", "documentation": "x", "keywords": ["a"], "categories": [],
            "dependencies": [
                { "name": "iopath-base", "path": "/p", "req": "*", "kind": null },
                { "name": "iopath-testkit", "path": "/p", "req": "*", "kind": "dev" },
            ],
        });
        let said = missing(&package);
        assert_eq!(said, ["no readme", "0 categories", "iopath-base has no version"]);
    }
}
