//! Tasks of the project: `cargo xtask help` lists them.

mod bench;
mod boot;
mod budget;
mod c;
mod campaign;
mod circles;
mod guest;
mod judges;
mod layers;
mod licences;
mod marked;
mod mutations;
mod newest;
mod package;
mod pages;
mod peers;
mod python;
mod reader;
mod release;
mod run;
mod sandbox;
mod scale;
mod site;
mod source;
mod suite;
mod tidy;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask TASK

  test [FILTER]  all checks and all tests, fast ones first (installs the outside judges as root)
  test --programs the test programs alone, side by side, and the examples in the documentation
  ci             what continuous integration runs: the same as `test`
  fmt            format every file
  lint           clippy with warnings as errors
  layers         check that crates depend downwards only, and for circles between their folders
  licences       check the licences of all dependencies
  tidy [--bless] check sizes, and counts of what is hard to read, against the ratchet (--bless:
                 shrink it)
  peers          the mount and the command beside fuse2fs, mke2fs -d, debugfs and the kernel: writes
                 docs/peers.md; IOPATH_BIN measures another binary, IOPATH_ROUNDS=1 is quicker
  pages [NAME]   make the pages of the experiments and the table of docs/results.md again (pages
                 --check: do those that give the same everywhere again and compare; --check
                 --quick: those that take a second); IOPATH_BIN names a program that is built
  scale [FILES]  a million small files built, extracted, compared, checked and repaired beside the
                 tools: writes docs/scale.md; in memory: 16 GiB of it for a million
  campaign [STATES] [--kernel STATES] [--seed N] [--jobs N] [--parents]  the long crash campaign,
                 in pieces, so many at once: does those that are missing, and writes
                 docs/fault-model.md (--parents: of XFS with parent pointers alone)
  mutations [NAME]  apply each patch of xtask/mutations in a checkout of its own, and print after
                 how many states the crash campaign of CI fails
  bench          speed beside the peers: ratios measured in one run
  budget [--bless]  instructions per operation against xtask/budget.txt
  python [ARGS]  build the Python package, install it in target/python/venv, test it; ARGS to pytest
  c              the library for C: its symbols, its header and its examples by C compilers (c
                 --header [--bless]: compare with cbindgen, or write; c --install PREFIX)
  sandbox        what the sandbox costs in processor time: writes the table of docs/sandbox.md;
                 IOPATH_BIN measures another binary
  site           the documentation as a site, in target/site/book; checks its links (site --links:
                 no more than that)
  follow         run the commands of the pages that begin a face, as they stand
  package        a .deb and an .rpm, in target/packages (--try: use it in a fresh Debian, as root)
  reader         check that a reader of one format has neither faces, lab nor io_uring (--time:
                 build it from nothing; --platforms: compile the library for macOS and Windows)
  release --dry-run [--verify]  package all crates in their order as for the registry (--verify:
                 compile each as a stranger gets it)
  judges [--newest]  install or name the outside programs that judge the tests (--newest: those of
                 Debian's newest suite, in the folder IOPATH_NEWEST, /var/cache/iopath/newest)
  boot            boot a Debian from an image that we built, under QEMU, to a login prompt
  guest [--stable] [SCRIPT [DISK..]]  run a script as root with these disks in a guest, under QEMU,
                 whose kernel and tools are those of Debian's newest suite (makes it first, as root;
                 --stable: the kernel of this machine's Debian)
";

fn main() -> std::process::ExitCode {
    match task() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // The chain of causes in one line; a backtrace would hide it.
            eprintln!("xtask: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn task() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let from = std::env::current_dir()?;
    std::env::set_current_dir(run::root())?;
    match words.as_slice() {
        ["test"] | ["ci"] if run::is_cold() => run::again_without_incremental(words[0]),
        ["test"] | ["ci"] => all(),
        ["test", "--programs"] => suite::run_all(),
        ["test", filter] => run::cargo(&["test", "--workspace", filter]),
        ["budget"] => budget::check(false),
        ["budget", "--bless"] => budget::check(true),
        ["bench"] => bench::run_all(),
        ["peers"] => peers::write(),
        ["scale", more @ ..] => scale::write(more),
        ["campaign", more @ ..] => campaign::run_all(more),
        ["mutations", names @ ..] => mutations::run_all(names),
        ["pages", "--check"] => pages::check(),
        ["pages", "--check", "--quick"] => pages::check_quick(),
        ["pages", names @ ..] => pages::write(names),
        ["fmt"] => run::cargo(&["fmt", "--all"]),
        ["lint"] => lint(),
        ["layers"] => layers::check(),
        ["licences"] => licences::check(),
        ["tidy"] => tidy::check(false),
        ["tidy", "--bless"] => tidy::check(true),
        ["python", more @ ..] => python::test(more),
        ["reader"] => reader::check(),
        ["reader", "--time"] => reader::time(),
        ["reader", "--platforms"] => reader::platforms(),
        ["release", "--dry-run"] => release::dry_run(false),
        ["release", "--dry-run", "--verify"] => release::dry_run(true),
        ["c"] => c::test(),
        ["c", "--header"] => c::header(false),
        ["c", "--header", "--bless"] => c::header(true),
        ["c", "--install", prefix] => c::install(prefix),
        ["sandbox"] => sandbox::write(),
        ["site"] => site::build(),
        ["site", "--links"] => site::links(),
        ["follow"] => site::follow(),
        ["package"] => package::build(),
        ["package", "--try"] => package::try_it(),
        ["judges"] => judges::require(),
        ["judges", "--newest"] => newest::require(),
        ["boot"] => boot::boot(),
        ["guest"] => guest::make(guest::Kernel::Newest).map(drop),
        ["guest", "--stable"] => guest::make(guest::Kernel::Stable).map(drop),
        ["guest", "--stable", script, disks @ ..] => {
            guest::run(&from, guest::Kernel::Stable, script, disks)
        }
        ["guest", script, disks @ ..] => guest::run(&from, guest::Kernel::Newest, script, disks),
        [] | ["help"] | ["--help"] | ["-h"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("unknown task {other:?}; `cargo xtask help` lists the tasks"),
    }
}

fn lint() -> Result<()> {
    run::cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
}

/// Fast checks first, so that a slip is reported in seconds.
fn all() -> Result<()> {
    run::step("format", || run::cargo(&["fmt", "--all", "--check"]))?;
    run::step("layers", layers::check)?;
    run::step("readers", reader::check)?;
    run::step("licences", licences::check)?;
    run::step("tidy", || tidy::check(false))?;
    run::step("judges", judges::require)?;
    run::step("newest judges", newest::require)?;
    run::step("lint", lint)?;
    run::step("instruction budget", || budget::check(false))?;
    run::step("crates for the registry", || release::dry_run(false))?;
    run::step("Python package", || python::test(&[]))?;
    run::step("tests", suite::run_all)?;
    // With what the tests have built.
    run::step("C library", c::test)?;
    run::step("first pages", site::follow)?;
    run::step("pages of the lab", pages::check_quick)
}
