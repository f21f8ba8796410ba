//! Experiments that start from another one: `like = "cfq-yield"`, and below it what is different.

use toml::{Table, Value};

use super::check::Wrong;

/// Most experiments that stand behind each other.
const DEPTH: usize = 8;

/// The text with everything that it inherits; none where it inherits nothing. Tables are taken key
/// by key, so that `[variant.mine]` comes beside the others; a list (`[[table]]`, `[[cell]]`,
/// `[[relation]]`, `[[sweep]]`) replaces that of the other experiment.
///
/// # Errors
/// The text is no TOML; there is no such experiment; too many stand behind each other.
pub fn whole(text: &str) -> Result<Option<String>, Wrong> {
    let wrong = |message: String| Wrong { span: None, message };
    let read = |text: &str| {
        let table = toml::from_str::<Table>(text);
        table.map_err(|e| Wrong { span: e.span(), message: e.message().to_owned() })
    };
    let mut own = read(text)?;
    let mut steps = 0;
    while let Some(like) = own.remove("like") {
        steps += 1;
        let known = || super::experiments().collect::<Vec<_>>().join(", ");
        let Some(base) = like.as_str().and_then(super::text) else {
            return Err(wrong(format!(
                "like: there is no experiment {like}; there are: {}",
                known()
            )));
        };
        if steps > DEPTH {
            return Err(wrong(format!("like: more than {DEPTH} experiments behind each other")));
        }
        let mut base = read(base)?;
        // It is an experiment of its own.
        base.remove("part_of");
        lay_over(&mut base, own);
        own = base;
    }
    match steps {
        0 => Ok(None),
        _ => toml::to_string(&own).map(Some).map_err(|error| wrong(error.to_string())),
    }
}

/// Lays what is different over what was there.
fn lay_over(base: &mut Table, own: Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
