//! Every name that a file uses must exist in it, every number must make sense.

use std::collections::BTreeMap;
use std::ops::Range;

use block::control::CONTROLLERS;
use toml::Spanned;

use super::file::{
    Case, Cell, File, Filesystem, Metric, Name, Share, Sweep, Table, Tool, Variant, Vary, Workload,
};
use super::value::CellName;
use super::{Figure, expand, options};

/// Most simulated seconds of one run.
const SECONDS_MAX: f64 = 86_400.0;
/// Most values of a sweep, most entries of any other list.
const LIST_MAX: usize = 256;

/// What is wrong, and where.
pub struct Wrong {
    pub span: Option<Range<usize>>,
    pub message: String,
}

type Checked = Result<(), Wrong>;

fn wrong<T>(span: Option<Range<usize>>, message: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { span, message: message.into() })
}

fn ensure(holds: bool, span: Option<Range<usize>>, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { wrong(span, message()) }
}

/// The entry of that name, or an error that lists the names there are.
fn find<'a, T>(map: &'a BTreeMap<String, T>, kind: &str, name: &Name) -> Result<&'a T, Wrong> {
    map.get(name.get_ref()).ok_or_else(|| {
        let known = map.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("there is no {kind} `{}`; there are: {known}", name.get_ref());
        Wrong { span: Some(name.span()), message }
    })
}

/// Checks a whole file.
pub fn check(file: &File) -> Checked {
    let schema = *file.schema.get_ref();
    ensure(schema == 1, Some(file.schema.span()), || {
        format!("schema {schema} is not known: this program reads schema 1")
    })?;
    let lists = [file.table.len(), file.cell.len(), file.relation.len(), file.sweep.len()];
    let maps = [file.variant.len(), file.case.len(), file.metric.len(), file.workload.len()];
    let longest = lists.into_iter().chain(maps).max().unwrap_or(0);
    ensure(longest <= LIST_MAX, None, || format!("{longest} entries are more than {LIST_MAX}"))?;
    program(file)?;
    filesystems(file)?;
    file.group.iter().try_for_each(|(name, share)| self::share(name, share))?;
    file.workload.iter().try_for_each(|(name, one)| workload(name, one))?;
    file.case.values().try_for_each(|case| self::case(file, case))?;
    file.variant.keys().try_for_each(|name| variant(file, name))?;
    file.metric.values().try_for_each(|metric| self::metric(file, metric))?;
    file.table.iter().try_for_each(|table| self::table(file, table))?;
    file.cell.iter().try_for_each(|cell| self::cell(file, cell))?;
    relations(file)?;
    file.sweep.iter().try_for_each(|sweep| self::sweep(file, sweep))?;
    frontier(file)?;
    search(file)?;
    headline(file)
}

fn headline(file: &File) -> Checked {
    let Some(headline) = &file.headline else { return Ok(()) };
    find(&file.filesystem, "filesystem", &headline.filesystem)?;
    let (name, span) = (headline.cell.get_ref(), Some(headline.cell.span()));
    let published = file.cell.iter().any(|cell| cell.cell.get_ref() == name);
    ensure(published, span, || format!("headline: {name} is no published cell"))?;
    let mut ours = headline.ours.iter();
    ours.try_for_each(|cell| cell_name(file, cell.get_ref(), Some(cell.span())))
}

/// What belongs to programs alone, and what they do not take.
fn program(file: &File) -> Checked {
    let Some(program) = &file.program else {
        ensure(!file.machine.is_at_hand(), None, || "there is no [machine]".to_owned())?;
        let given = |case: &Case| case.measured || !(case.with.is_empty() && case.full.is_empty());
        let none = file.with.is_empty() && file.full.is_empty();
        return ensure(none && !file.case.values().any(given), None, || {
            "`with`, `full` and `measured` are for programs: program = ..".to_owned()
        });
    };
    let none = file.workload.is_empty() && file.sweep.is_empty();
    ensure(none, Some(program.span()), || "a program takes no workloads and sweeps".to_owned())
}

fn filesystems(file: &File) -> Checked {
    for (name, one) in &file.filesystem {
        let place = Some(one.kind.span());
        ensure(one.is_xfs() || one.stripe.is_none(), place.clone(), || {
            format!("filesystem {name}: `stripe` is for xfs")
        })?;
        ensure(!one.is_xfs() || one.features.is_empty(), place.clone(), || {
            format!("filesystem {name}: `features` are for ext2, ext3 and ext4")
        })?;
        let options = match one.is_xfs() {
            true => options::parse_xfs(one.mount.text()).map(drop),
            false => {
                if let Err(message) = one.kind.get_ref().parse::<ext4::mkfs::FsType>() {
                    return wrong(place, format!("filesystem {name}: {message}, or xfs"));
                }
                options::parse(one.mount.text()).map(drop)
            }
        };
        options
            .or_else(|message| wrong(one.mount.span(), format!("filesystem {name}: {message}")))?;
        for layout in &one.files {
            let path = layout.path.get_ref();
            ensure(path.starts_with('/') && path.len() > 1, Some(layout.path.span()), || {
                format!("`{path}` is no absolute path of a file")
            })?;
            ensure(layout.size < file.machine.device, Some(layout.path.span()), || {
                format!("{path}: {} do not fit on a device of {}", layout.size, file.machine.device)
            })?;
        }
    }
    Ok(())
}

fn share(name: &str, share: &Share) -> Checked {
    share.of_queue().map(drop).or_else(|message| {
        wrong(share.max.as_ref().map(Spanned::span), format!("group {name}: {message}"))
    })
}

fn workload(name: &str, one: &Workload) -> Checked {
    let (wanted, needless, word) = match one.tool {
        Tool::FsMark => (&one.args, &one.job, "args"),
        Tool::Fio => (&one.job, &one.args, "job"),
    };
    if let Some(needless) = needless {
        return wrong(Some(needless.span()), format!("workload {name} takes `{word}` only"));
    }
    let Some(text) = wanted else { return wrong(None, format!("workload {name} has no `{word}`")) };
    options::check(one.tool, text.get_ref())
        .or_else(|message| wrong(Some(text.span()), format!("workload {name}: {message}")))
}

fn seconds(value: f64, what: &str) -> Checked {
    ensure(value > 0.0 && value <= SECONDS_MAX, None, || {
        format!("{what}: {value} seconds are not above 0 and up to {SECONDS_MAX}")
    })
}

fn case(file: &File, case: &Case) -> Checked {
    if file.program.is_some() {
        return ensure(case.run.is_empty(), None, || format!("{}: programs do it", case.title));
    }
    ensure(!case.run.is_empty(), None, || format!("the case {} runs nothing", case.title))?;
    case.run.iter().try_for_each(|name| find(&file.workload, "workload", name).map(drop))?;
    for (name, group) in &case.groups {
        find(&file.group, "group", group)?;
        ensure(case.run.iter().any(|run| run.get_ref() == name), Some(group.span()), || {
            format!("groups of the case {}: it does not run `{name}`", case.title)
        })?;
    }
    seconds(case.seconds, &case.title)?;
    case.quick_seconds.map_or(Ok(()), |value| seconds(value, &case.title))?;
    for (name, value) in &case.seconds_of {
        ensure(file.variant.contains_key(name), None, || {
            format!("seconds_of of the case {}: there is no variant `{name}`", case.title)
        })?;
        seconds(*value, &case.title)?;
    }
    let Some(lines) = &case.lines else { return Ok(()) };
    let runs = case.run.iter().any(|name| name.get_ref() == lines.of.get_ref());
    ensure(runs, Some(lines.of.span()), || {
        format!("the case {} does not run `{}`", case.title, lines.of.get_ref())
    })
}

fn variant(file: &File, name: &str) -> Checked {
    let (mut at, mut steps) = (&file.variant[name], 0);
    while let Some(like) = &at.like {
        at = find(&file.variant, "variant", like)?;
        steps += 1;
        ensure(steps <= file.variant.len(), Some(like.span()), || {
            format!("variant {name} is like itself, over {steps} others")
        })?;
    }
    if file.program.is_some() {
        return Ok(());
    }
    let whole = expand::variant(file, name);
    let Some(elevator) = &whole.elevator else {
        return wrong(None, format!("variant {name} has no elevator"));
    };
    // A variant may be for the XFS of the file alone.
    let ext = options::parse(whole.mount.text()).map(drop);
    let xfs = |message: String| match file.filesystem.values().any(Filesystem::is_xfs) {
        true => options::parse_xfs(whole.mount.text()).map(drop).map_err(|_| message),
        false => Err(message),
    };
    ext.or_else(xfs)
        .or_else(|message| wrong(whole.mount.span(), format!("variant {name}: {message}")))?;
    for (group, share) in &whole.groups {
        ensure(file.group.contains_key(group), None, || {
            format!("variant {name}: there is no group `{group}`")
        })?;
        self::share(group, &file.group[group].with(share))?;
    }
    if let Some(controller) = &whole.controller {
        let known = CONTROLLERS;
        ensure(known.contains(&controller.get_ref().as_str()), Some(controller.span()), || {
            let name = controller.get_ref();
            format!("there is no controller `{name}`; there are: {}", known.join(", "))
        })?;
    }
    tunables(name, &whole, elevator)
}

fn tunables(name: &str, whole: &Variant, elevator: &Name) -> Checked {
    let span = Some(elevator.span());
    let controller = whole.controller.as_ref().map(|name| name.get_ref().as_str());
    let Some(mut made) = block::control::controlled(elevator.get_ref(), controller) else {
        let known = block::elevator::names().collect::<Vec<_>>().join(", ");
        let message = format!("there is no elevator `{}`; there are: {known}", elevator.get_ref());
        return wrong(span, message);
    };
    for (tunable, value) in expand::tunables(whole) {
        if matches!(tunable.as_str(), "nr_requests" | "nomerges") {
            continue;
        }
        made.set_tunable(&tunable, &value)
            .or_else(|error| wrong(span.clone(), format!("variant {name}: {error}")))?;
    }
    Ok(())
}

fn metric(file: &File, metric: &Metric) -> Checked {
    if file.program.is_some() {
        return Ok(()); // The program knows its figures.
    }
    let span = Some(metric.value.span());
    let figure: Figure =
        metric.value.get_ref().parse().or_else(|message: String| wrong(span.clone(), message))?;
    match &metric.of {
        Some(name) => find(&file.workload, "workload", name).map(drop),
        None if figure.needs_workload() => {
            wrong(span, format!("`{}` needs a workload: of = ..", metric.value.get_ref()))
        }
        None => Ok(()),
    }
}

fn table(file: &File, table: &Table) -> Checked {
    let filesystems = table.filesystems.iter().chain(&table.full_filesystems);
    filesystems.clone().try_for_each(|n| find(&file.filesystem, "filesystem", n).map(drop))?;
    let variants = table.variants.iter().chain(&table.against);
    variants.clone().try_for_each(|n| find(&file.variant, "variant", n).map(drop))?;
    let wide = !table.cases.is_empty();
    ensure(wide == table.columns.is_empty() && wide != table.metrics.is_empty(), None, || {
        format!("{}: a table has `columns`, or `cases` and `metrics`", table.title)
    })?;
    let cases = table.cases.iter().chain(&table.full_cases);
    cases.clone().try_for_each(|name| find(&file.case, "case", name).map(drop))?;
    table.metrics.iter().try_for_each(|name| find(&file.metric, "metric", name).map(drop))?;
    for column in &table.columns {
        let Some((case, metric)) = column.get_ref().split_once('.') else {
            let message = format!("`{}` is no column: write case.metric", column.get_ref());
            return wrong(Some(column.span()), message);
        };
        let named = |name: &str| Spanned::new(column.span(), name.to_owned());
        find(&file.case, "case", &named(case))?;
        find(&file.metric, "metric", &named(metric))?;
    }
    Ok(())
}

fn cell_name(file: &File, name: &CellName, span: Option<Range<usize>>) -> Checked {
    let named = |text: &str| Spanned::new(span.clone().unwrap_or(0..0), text.to_owned());
    find(&file.variant, "variant", &named(&name.variant))?;
    let case = find(&file.case, "case", &named(&name.case))?;
    let metric = find(&file.metric, "metric", &named(&name.metric))?;
    let Some(of) = &metric.of else { return Ok(()) };
    let runs = case.run.iter().any(|workload| workload.get_ref() == of.get_ref());
    ensure(runs, span, || format!("{name}: the case does not run `{}`", of.get_ref()))
}

fn range(range: &Spanned<[f64; 2]>) -> Checked {
    let [low, high] = *range.get_ref();
    ensure(low <= high, Some(range.span()), || format!("{low} to {high} is no range"))
}

fn cell(file: &File, cell: &Cell) -> Checked {
    cell_name(file, cell.cell.get_ref(), Some(cell.cell.span()))?;
    let fixed_on = cell.fixes.as_ref().map(|fixes| &fixes.filesystem);
    fixed_on.map_or(Ok(()), |name| find(&file.filesystem, "filesystem", name).map(drop))?;
    cell.within.iter().try_for_each(range)
}

fn relations(file: &File) -> Checked {
    for relation in &file.relation {
        let span = relation.value.span();
        let value = relation.value.get_ref();
        ensure(value.has_star() != relation.cases.is_empty(), Some(span.clone()), || {
            format!("{}: `*` stands for the cases of `cases`", relation.title)
        })?;
        relation.cases.iter().try_for_each(|name| find(&file.case, "case", name).map(drop))?;
        let one = Spanned::new(0..0, String::new());
        let cases = if value.has_star() { &relation.cases[..] } else { std::slice::from_ref(&one) };
        for case in cases {
            for name in value.of_case(case.get_ref()).cells() {
                cell_name(file, &name, Some(span.clone()))?;
            }
        }
        range(&relation.within)?;
        relation.accept.iter().try_for_each(range)?;
        let known = |name| find(&file.filesystem, "filesystem", name).map(drop);
        relation.filesystems.iter().chain(&relation.over).try_for_each(known)?;
    }
    Ok(())
}

fn sweep(file: &File, sweep: &Sweep) -> Checked {
    let filesystems = std::iter::once(&sweep.filesystem).chain(&sweep.full_filesystems);
    filesystems.clone().try_for_each(|n| find(&file.filesystem, "filesystem", n).map(drop))?;
    let case = find(&file.case, "case", &sweep.case)?;
    find(&file.metric, "metric", &sweep.metric)?;
    sweep.variants.iter().try_for_each(|name| find(&file.variant, "variant", name).map(drop))?;
    sweep.seconds.map_or(Ok(()), |value| seconds(value, &sweep.title))?;
    let count = sweep.values.len();
    ensure((1..=LIST_MAX).contains(&count), None, || {
        format!("{}: {count} values are not from 1 to {LIST_MAX}", sweep.title)
    })?;
    for value in &sweep.quick {
        ensure(sweep.values.iter().any(|one| one.get_ref() == value), None, || {
            format!("{}: the quick value {value} is not among the values", sweep.title)
        })?;
    }
    if sweep.limit {
        let metric = &file.metric[sweep.metric.get_ref()];
        ensure(metric.unit == "MiB/s", Some(sweep.metric.span()), || {
            format!("{}: a limit is drawn for MiB/s, not for {}", sweep.title, metric.unit)
        })?;
        let profile = model::Profile::load(file.machine.profile.get_ref());
        let known = profile.map_or(true, |profile| super::limit(&profile).is_some());
        ensure(known, Some(file.machine.profile.span()), || {
            format!("{}: of this machine's device no limit is known", sweep.title)
        })?;
    }
    match &sweep.vary {
        Vary::Tunable(_) => Ok(()),
        Vary::Machine(knob) => {
            let Ok(profile) = model::Profile::load(file.machine.profile.get_ref()) else {
                return Ok(()); // The run will say so.
            };
            sweep.values.iter().try_for_each(|value| {
                let set = sweep.varied(knob, *value.get_ref()).apply(&profile).map(drop);
                set.or_else(|message| wrong(Some(value.span()), message))
            })
        }
        Vary::Mount(name) => {
            let filesystem = &file.filesystem[sweep.filesystem.get_ref()];
            sweep.values.iter().try_for_each(|value| {
                let text = format!("{}={}", name.get_ref(), value.get_ref());
                let known = match filesystem.is_xfs() {
                    true => options::parse_xfs(&text).map(drop),
                    false => options::parse(&text).map(drop),
                };
                known.or_else(|message| wrong(Some(name.span()), message))
            })
        }
        Vary::Option { workload, .. } | Vary::Job { workload, .. } => {
            let runs = case.run.iter().any(|name| name.get_ref() == workload.get_ref());
            ensure(runs, Some(workload.span()), || {
                format!("the case {} does not run `{}`", case.title, workload.get_ref())
            })
        }
    }
}

fn search(file: &File) -> Checked {
    let Some(search) = &file.search else { return Ok(()) };
    let mut filesystems = search.filesystems.iter();
    filesystems.try_for_each(|name| find(&file.filesystem, "filesystem", name).map(drop))?;
    ensure(!file.cell.is_empty(), None, || "search: there is no published cell".to_owned())?;
    for (name, value) in &search.seconds {
        ensure(file.case.contains_key(name), None, || format!("search: there is no case {name}"))?;
        seconds(*value, "search")?;
    }
    let none = search.unknown.iter().find(|unknown| unknown.values.is_empty());
    ensure(none.is_none(), None, || {
        format!("search: {} has no values", none.map_or("", |unknown| &unknown.title))
    })?;
    let beside = search.beside.as_ref();
    beside.map_or(Ok(()), |cell| cell_name(file, cell.get_ref(), Some(cell.span())))
}

fn frontier(file: &File) -> Checked {
    let Some(frontier) = &file.frontier else { return Ok(()) };
    find(&file.filesystem, "filesystem", &frontier.filesystem)?;
    find(&file.case, "case", &frontier.case)?;
    find(&file.metric, "metric", &frontier.x)?;
    find(&file.metric, "metric", &frontier.y)?;
    frontier.variants.iter().try_for_each(|name| find(&file.variant, "variant", name).map(drop))
}
