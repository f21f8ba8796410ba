//! The page is opened by a real browser without a screen: no error, nothing fetched, every table
//! and picture there, and its two controls work.

use std::process::Command;

use lab::experiment::{Experiment, Plan};
use lab::report::Report;
use lab::run::{RunOptions, run_all};

/// Before everything of the page: notes errors and what its own policy forbids.
const BEFORE: &str = "<script>window.wrong = []; \
    addEventListener('error', (e) => wrong.push(String(e.message || e.target.outerHTML)), true); \
    addEventListener('securitypolicyviolation', (e) => wrong.push(e.blockedURI)); \
    const say = console.error; console.error = (...a) => { wrong.push(a.join(' ')); say(...a); };\
    </script>";

/// Behind it: uses the controls, and leaves what it found where the dump shows it.
const BEHIND: &str = "<script>\
    const pick = document.querySelector('select[data-pick]'); \
    pick.value = '1'; pick.dispatchEvent(new Event('change')); \
    const seen = [...document.querySelectorAll('.scene')].filter((s) => !s.hidden).length; \
    document.getElementById('theme').click(); \
    const found = { wrong: wrong.length, why: wrong.join('|'), \
      fetched: performance.getEntriesByType('resource').length, \
      tables: document.querySelectorAll('table').length, \
      pictures: document.querySelectorAll('svg').length, \
      marks: document.querySelectorAll('svg [data-t]').length, \
      scenes: document.querySelectorAll('.scene').length, seen, \
      theme: document.documentElement.dataset.theme, \
      wide: document.documentElement.scrollWidth <= innerWidth }; \
    document.title = 'FOUND' + JSON.stringify(found) + 'END';</script>";

fn browser() -> &'static str {
    let known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = known.into_iter().find(|path| std::path::Path::new(path).exists());
    found.expect("a browser judges this test: apt-get install chromium")
}

/// The report of an experiment that a program runs, with one table of a row for each case.
fn program() -> Report {
    let text = include_str!("small-program.toml");
    let experiment = Experiment::parse("small-program", "small-program.toml", text).unwrap();
    let plan = Plan { cases: vec!["document".to_owned()], ..Plan::default() };
    let options = RunOptions { plan, ..RunOptions::default() };
    let records = run_all(&experiment, &options, Vec::new(), &()).unwrap();
    Report::build(&experiment, records, "iopath lab run small-program.toml")
}

#[test]
fn a_browser_shows_everything_and_fetches_nothing() {
    let text = include_str!("small.toml");
    let experiment = Experiment::parse("small", "small.toml", text).unwrap();
    let records = run_all(&experiment, &RunOptions::default(), Vec::new(), &()).unwrap();
    let report = Report::build(&experiment, records, "iopath lab run small.toml");
    let page = Report::html(&[report, program()], None).unwrap();
    let page = page.replacen("<head>", &format!("<head>{BEFORE}"), 1);
    let page = page.replacen("</body>", &format!("{BEHIND}</body>"), 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    std::fs::write(&file, page).unwrap();
    let output = Command::new(browser())
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--window-size=1200,900", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom.split_once("<title>FOUND").and_then(|(_, rest)| rest.split_once("END"));
    let errors = String::from_utf8_lossy(&output.stderr);
    let found = found.unwrap_or_else(|| panic!("the page's script did not run: {errors}")).0;
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let number = |key: &str| found[key].as_u64().unwrap_or(u64::MAX);
    assert_eq!((number("wrong"), number("fetched")), (0, 0), "{found}");
    // Overview, main table, comparisons, commands, relations, the program's; time lines, series,
    // forest, idle, latency, sweep.
    assert!(number("tables") >= 6 && number("pictures") >= 10, "{found}");
    assert!(number("marks") > 100, "{found}");
    assert_eq!((number("scenes"), number("seen")), (4, 1), "{found}");
    assert_eq!((&found["theme"], &found["wide"]), (&"dark".into(), &true.into()), "{found}");
}
