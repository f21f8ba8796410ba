//! What the commands print with `--json` is what docs/json-schema.json says.

use std::path::Path;

use crate::command::{iopath_in, ok_in};
use crate::log;
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../../docs/json-schema.json");
const PAGE: &str = include_str!("../../../../docs/json.md");

/// The schema's definitions, and what of them was seen.
struct Schema {
    kinds: Value,
    seen: Vec<String>,
}

impl Schema {
    /// What of a value is not as the schema says; the keywords that the file uses, no more.
    fn mistake(&self, value: &Value, schema: &Value) -> Option<String> {
        let object = schema.as_object().expect("a schema is an object");
        for (keyword, wanted) in object {
            let wrong = match keyword.as_str() {
                "description" => None,
                "$ref" => {
                    let name = wanted.as_str()?.trim_start_matches("#/$defs/");
                    self.mistake(value, &self.kinds[name])
                }
                "type" => {
                    let is = |kind: &Value| is_of(value, kind.as_str().expect("a type"));
                    let fits = wanted.as_array().map_or_else(|| is(wanted), |w| w.iter().any(is));
                    (!fits).then(|| format!("{value} is no {wanted}"))
                }
                "enum" => {
                    let known = wanted.as_array().is_some_and(|list| list.contains(value));
                    (!known).then(|| format!("{value} is none of {wanted}"))
                }
                "items" => value.as_array()?.iter().find_map(|item| self.mistake(item, wanted)),
                "required" => wanted.as_array()?.iter().find_map(|key| {
                    let missing = value.get(key.as_str()?).is_none();
                    missing.then(|| format!("{key} is missing"))
                }),
                "properties" => value.as_object()?.iter().find_map(|(key, value)| {
                    let found = self.mistake(value, wanted.get(key)?)?;
                    Some(format!("{key}: {found}"))
                }),
                "additionalProperties" => {
                    value.as_object()?.iter().find_map(|(key, value)| {
                        match (object.get("properties").and_then(|known| known.get(key)), wanted) {
                            (Some(_), _) => None,
                            (None, Value::Bool(_)) => Some(format!("{key} is not described")),
                            (None, schema) => self.mistake(value, schema),
                        }
                    })
                }
                other => panic!("the test does not know the keyword {other}"),
            };
            if wrong.is_some() {
                return wrong;
            }
        }
        None
    }

    /// Every line is of one of these kinds, and each kind is there.
    fn check(&mut self, text: &str, kinds: &[&str], line: &str) {
        let mut missing = kinds.to_vec();
        for printed in text.lines() {
            let value: Value = serde_json::from_str(printed).expect(printed);
            let wrong: Vec<Option<String>> =
                kinds.iter().map(|kind| self.mistake(&value, &self.kinds[kind])).collect();
            let fits = wrong.iter().position(Option::is_none);
            let kind = kinds[fits.unwrap_or_else(|| panic!("{line}: {printed}: {wrong:?}"))];
            missing.retain(|&wanted| wanted != kind);
            self.seen.push(kind.to_owned());
        }
        assert!(missing.is_empty(), "{line} printed no {missing:?}: {text}");
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the test does not know the type {other}"),
    }
}

/// An image of each format, a disk, and a damaged image.
fn prepare(dir: &Path) {
    std::fs::create_dir_all(dir.join("t/etc")).expect("a directory");
    std::fs::write(dir.join("t/etc/hostname"), "box\n").expect("a file");
    std::os::unix::fs::symlink("hostname", dir.join("t/etc/link")).expect("a link");
    let plan = "[[partition]]\nname = \"a\"\ntype = \"root\"\nformat = \"ext4\"\nsize = \"8M\"\n";
    std::fs::write(dir.join("plan.toml"), plan).expect("a plan");
    for line in ["mkfs -q -t ext4 --size 20M -d t a.img", "mkfs -q -t ext4 --size 20M bad.img"] {
        ok_in(dir, line);
    }
    ok_in(dir, "mkfs -q -t xfs --size 300M x.img");
    ok_in(dir, "xattr set a.img:/etc/hostname user.a b");
    // The table of groups is lost.
    let bad = std::fs::File::options().write(true).open(dir.join("bad.img")).expect("the image");
    std::os::unix::fs::FileExt::write_all_at(&bad, &[0; 1024], 2048).expect("written");
}

/// What a server logs, and what `top` shows of it.
fn log_and_top(dir: &Path, schema: &mut Schema) {
    let metrics = dir.join("metrics").display().to_string();
    let options = ["--log-format", "json", "--log-level", "debug", "--metrics", &metrics];
    let log = std::fs::File::create(dir.join("log")).expect("a log");
    let (server, url) = log::serve(dir, &options, &log, None);
    ok_in(dir, &format!("ls {url}:/"));
    schema.check(&ok_in(dir, &format!("--json top --once {metrics}")), &["top"], "top");
    log::terminate(server);
    let text = std::fs::read_to_string(dir.join("log")).expect("the log");
    schema.check(&text, &["log"], "serve nbd");
}

/// A mounted image that becomes larger. It is in use until its program has ended.
fn grown(dir: &Path, schema: &mut Schema) {
    let mnt = dir.join("mnt");
    std::fs::create_dir(&mnt).expect("a directory");
    std::fs::copy(dir.join("a.img"), dir.join("mounted.img")).expect("a copy");
    ok_in(dir, "mount mounted.img mnt");
    let said = iopath_in(dir, "--json resize mnt 32M");
    testkit::judge::run_ok("umount", &[&mnt]);
    assert!(said.status.success(), "{said:?}");
    schema.check(&String::from_utf8_lossy(&said.stdout), &["grown"], "resize");
}

#[test]
fn every_line_is_as_the_schema_says() {
    let dir = tempfile::tempdir().expect("a directory");
    prepare(dir.path());
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    let mut schema = Schema { kinds: schema["$defs"].clone(), seen: Vec::new() };
    let lines: [(&str, i32, &[&str]); 30] = [
        ("ls a.img:/etc", 0, &["ls"]),
        ("stat a.img:/etc/link a.img:/etc/hostname", 0, &["stat"]),
        ("tree a.img:/", 0, &["name"]),
        ("find a.img:/etc", 0, &["name"]),
        ("manifest a.img:/", 0, &["manifest"]),
        ("du a.img:/", 0, &["du"]),
        ("df a.img x.img", 0, &["df"]),
        ("xattr list a.img:/etc/hostname", 0, &["xattr"]),
        ("diff a.img:/ x.img:/", 1, &["diff"]),
        ("sync t/ x.img:/", 0, &["sync", "copied"]),
        ("cp -r t x.img:/copy", 0, &["copied"]),
        ("info a.img", 0, &["info"]),
        ("info x.img", 0, &["info"]),
        ("check a.img", 0, &["check"]),
        ("check bad.img", 4, &["finding", "check"]),
        ("repair -n bad.img", 4, &["step", "repair"]),
        ("replay a.img", 0, &["replay"]),
        ("resize -P a.img", 0, &["minimum"]),
        ("resize a.img 24M", 0, &["resize"]),
        ("tune -L new a.img", 0, &["tune"]),
        ("which a.img 5000", 0, &["which"]),
        ("scan a.img", 0, &["scan"]),
        ("mkfs -t ext4 --size 20M -d t b.img", 0, &["mkfs"]),
        ("mkfs -t xfs --size 300M y.img", 0, &["mkfs"]),
        ("mkfs -O journal_dev --size 5M j.img", 0, &["mkfs"]),
        ("info j.img", 0, &["info"]),
        ("disk create d.img plan.toml", 0, &["disk"]),
        ("info d.img", 0, &["info"]),
        ("info d.img@1", 0, &["info"]),
        ("machines", 0, &["machine"]),
    ];
    for (line, status, kinds) in lines {
        let output = iopath_in(dir.path(), &format!("--json {line}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {error}");
        schema.check(&String::from_utf8_lossy(&output.stdout), kinds, line);
    }
    for (line, status) in [
        ("ls a.img:/nope", 1),
        ("cat a.img:/nope", 1),
        ("info none.img", 1),
        ("check none.img", 8),
        ("ls --nonsense a.img:/", 2),
        ("nonsense", 2),
    ] {
        let output = iopath_in(dir.path(), &format!("--json {line}"));
        assert_eq!(output.status.code(), Some(status), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        schema.check(&String::from_utf8_lossy(&output.stderr), &["error"], line);
    }
    grown(dir.path(), &mut schema);
    log_and_top(dir.path(), &mut schema);
    // Each kind is in the page and was seen; `push` needs a server.
    for kind in schema.kinds.as_object().expect("definitions").keys() {
        let is_part = ["geometry", "usable"].contains(&kind.as_str());
        assert!(is_part || PAGE.contains(&format!("`{kind}`")), "{kind} is not in docs/json.md");
        assert!(is_part || kind == "push" || schema.seen.contains(kind), "{kind} was not seen");
    }
}
