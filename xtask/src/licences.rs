//! Licences of all dependencies: each must offer a way that permits what ours permit.

use anyhow::{Result, bail};

use crate::run;

const ALLOWED: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "BSL-1.0",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
    "CC0-1.0",
    // For data: the root certificates of Mozilla.
    "CDLA-Permissive-2.0",
];

/// An SPDX expression is fine where one of its alternatives consists of allowed licences.
fn allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    // `A AND (B OR C)` is read as `(A AND B) OR C`; with every name allowed the answer is the same.
    let names = plain.split(" AND ").flat_map(|part| part.split(" OR "));
    let every = names.clone().all(|name| ALLOWED.contains(&name.trim()));
    let one = !plain.contains(" AND ") && names.into_iter().any(|n| ALLOWED.contains(&n.trim()));
    every || one
}

/// Reads the licences from `cargo metadata` and names every package that offers none of ours.
pub fn check() -> Result<()> {
    let metadata = run::metadata(true)?;
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let licence = package["license"].as_str().unwrap_or("none");
        if !allowed(licence) {
            wrong.push(format!("{} {}: {licence}", package["name"], package["version"]));
        }
    }
    if !wrong.is_empty() {
        bail!("licences that are not allowed:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn copyleft_is_refused_and_a_choice_is_enough() {
        assert!(allowed("MIT OR Apache-2.0"));
        assert!(allowed("MIT/Apache-2.0"));
        assert!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(allowed("MIT OR Apache-2.0 OR LGPL-2.1-or-later"));
        assert!(!allowed("GPL-3.0"));
        assert!(!allowed("MIT AND GPL-2.0-or-later"));
        assert!(!allowed("none"));
    }
}
