//! `info`: what a target holds.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::app::App;
use crate::inside;
use crate::nfs_target;
use crate::recognise::{self, Content, PROBE};
use crate::storage::{self, Storage};
use crate::target::TargetPath;
use crate::text;
use crate::volumes;
use crate::xfs_target::xfs_facts;

/// Show what a target holds: partitions, format, features, state
#[derive(Args)]
#[command(after_help = "Examples:
  iopath info disk.img
  iopath info --json disk.img@1 | jq .features")]
pub struct Options {
    /// Image or device: TARGET
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs `info`. Nothing is written, and a dirty journal is no obstacle.
///
/// # Errors
/// A target that cannot be opened.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    for target in &options.targets {
        let target = TargetPath::parse(target)?.target;
        if target.nfs_url().is_some() {
            let facts = nfs_target::facts(app, &target)?;
            show(app, facts)?;
            continue;
        }
        let storage = Storage::open(app, &target, false)?;
        let mut facts: Vec<(&str, Value)> = Vec::new();
        let mut fact = |key: &'static str, value: Value| facts.push((key, value));
        fact("target", json!(target.to_string()));
        fact("size", json!(storage.bytes()));
        fact("sandbox", json!(app.locked.as_ref().map(ToString::to_string)));
        if let Some(image) = &storage.container {
            for (key, value) in inside::facts(app, &**image)? {
                fact(key, value);
            }
        }
        for (key, value) in volumes::facts(app, &storage)? {
            fact(key, value);
        }
        match storage.format(app)? {
            Content::Ext(kind) => {
                fact("format", json!(kind));
                for (key, value) in storage::ext_facts(app, &storage)? {
                    fact(key, value);
                }
            }
            Content::Xfs => {
                fact("format", json!("xfs"));
                for (key, value) in xfs_facts(app, &storage)? {
                    fact(key, value);
                }
            }
            Content::Other(name, hint) => {
                fact("format", json!(name));
                for (key, value) in storage::journal_facts(app, &storage)? {
                    fact(key, value);
                }
                fact("hint", json!(hint));
            }
            Content::Partitioned(table) => {
                fact("format", json!(format!("{table} partition table")));
                let damage = match table {
                    "GPT" => recognise::gpt_damage(&storage.start(app, PROBE)?),
                    _ => None,
                };
                if let Some(damage) = damage {
                    let text = format!("the first copy {damage}; the one at the end is used");
                    fact("damage", json!(text));
                }
                fact("partitions", storage::partitions(app, &storage)?);
            }
            format => {
                let found = storage.remains(app)?;
                let blank = format == Content::Blank;
                fact("format", json!(if blank { "blank at its start" } else { "unknown" }));
                let lines = found.iter().map(|r| json!({ "what": r.what, "how": r.how }));
                fact("found", lines.collect());
                if blank && found.is_empty() {
                    let hint = format!("make a file system: iopath mkfs -t ext4 {target}");
                    fact("hint", json!(hint));
                }
            }
        }
        show(app, facts)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A partition, or what was found, as text.
fn sentence(item: &Value) -> String {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    if item["what"].is_string() {
        return format!("{}: {}", text("what"), text("how"));
    }
    if item["id"].is_string() {
        // A snapshot.
        let made = base::Timespec::from_secs(item["seconds"].as_i64().unwrap_or(0));
        return format!("{} `{}`, of {}", text("id"), text("name"), text::full_time(made));
    }
    let size = |key: &str| text::size(item[key].as_u64().unwrap_or(0));
    let name = match text("name") {
        "" => String::new(),
        name => format!(" `{name}`"),
    };
    format!(
        "{}:{name} {}, {} from {}, type {}",
        text("target"),
        text("holds"),
        size("size"),
        size("offset"),
        text("type")
    )
}

/// Prints facts in their order; empty ones are left out of the text.
fn show(app: &mut App, facts: Vec<(&str, Value)>) -> Result<()> {
    if app.out.json {
        let facts = facts.into_iter().map(|(key, value)| (key.to_string(), value));
        return Ok(app.out.document(&Value::Object(facts.collect()))?);
    }
    for (key, value) in facts {
        let label = key.replace('_', " ");
        let shown = match &value {
            Value::Null => continue,
            Value::String(text) if text.is_empty() => continue,
            Value::Array(items) if items.is_empty() => continue,
            Value::String(text) => text.clone(),
            Value::Number(number) if key == "size" => {
                format!("{number} bytes ({})", text::size(number.as_u64().unwrap_or(0)))
            }
            Value::Array(items) if key == "backing" || key == "marks" || key == "files" => {
                for item in items.iter().filter_map(Value::as_str) {
                    app.out.line(format!("{label:>16}: {item}"))?;
                }
                continue;
            }
            Value::Array(items) if items.iter().all(Value::is_string) => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
            }
            Value::Array(items) => {
                for item in items {
                    let line = sentence(item);
                    app.out.line(format!("{:>16}: {line}", label.trim_end_matches('s')))?;
                }
                continue;
            }
            other => other.to_string(),
        };
        app.out.line(format!("{label:>16}: {shown}"))?;
    }
    Ok(())
}
