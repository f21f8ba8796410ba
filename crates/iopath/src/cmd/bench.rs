//! `bench`: the field's workloads on the host, on an image, on a modelled machine.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use base::Nanos;
use clap::{Args, Subcommand};

use crate::app::App;
use crate::bench::{self, Machine, Where};
use crate::text;

/// Run fs_mark, fio, sysbench, mdtest, mds-survey: on the host, an image, a modelled machine
///
/// The tools take their own options and print their own output. Options of iopath stand before the
/// name of the tool.
#[derive(Args)]
#[command(after_help = "\
Where a workload runs:
  host, host:DIR            the host's file systems; relative paths below DIR (the default)
  disk.img, disk.img@2:/dir our path on an image or device; all paths lie below /dir
  sim:PROFILE               a modelled machine with a fresh file system, in virtual time;
                            also sim:PROFILE?fs=ext3&elevator=cfq&size=16G&seed=7
fs_mark -d disk.img:/dir is short for --target disk.img and -d /dir.

Examples:
  iopath bench fs_mark -d /tmp/a -n 100 -s 4096
  iopath bench fs_mark -S 1 -D 100 -N 1000 -d disk.img:/fs_mark -s 65536 -w 4096
  iopath bench --target sim:disk-7200 --elevator cfq --stop-after 30s fs_mark -d /a -F
  iopath bench --target sim:array-2010 --elevator cfq --tunable slice_idle=0 --noidle \
      -o journal_io=async,barrier=0 --stop-after 30s fs_mark -d /a -F -s 65536 -w 4096
  iopath bench --target disk.img fio job.fio --bs=16k --output-format=json
  iopath bench --target sim:flash-nvme fio --name=r --rw=randread --size=64m --direct=1")]
pub struct Options {
    /// Where it runs: host, an image, sim:PROFILE
    #[arg(long, value_name = "WHERE")]
    target: Option<OsString>,
    /// File system of a modelled machine: ext2, ext3, ext4, xfs
    #[arg(long, value_name = "TYPE")]
    fs: Option<String>,
    /// Elevator of a modelled machine
    #[arg(long, value_name = "NAME")]
    elevator: Option<String>,
    /// Tunable of a modelled machine's queue or elevator; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    tunable: Vec<String>,
    /// Synchronous writes of a modelled machine carry NOIDLE, as in Linux 2.6.30 to 2.6.37
    #[arg(long)]
    noidle: bool,
    /// Seed of a modelled machine: the same seed gives the same run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Size of a modelled machine's file system
    #[arg(long, value_name = "SIZE", value_parser = text::parse_size)]
    size: Option<u64>,
    /// End the run after this time on its clock, e.g. 30s, 500ms
    #[arg(long, value_name = "TIME", value_parser = bench::parse_time)]
    stop_after: Option<Nanos>,
    /// Options that have no effect here: strict refuses them, lenient ignores them with a warning
    #[arg(long, value_name = "MODE", default_value = "strict", hide_default_value = true,
          value_parser = ["strict", "lenient"])]
    compat: String,
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand)]
enum Tool {
    /// Create, write, sync and remove files
    #[command(
        name = "fs_mark",
        after_help = "\
The options are those of fs_mark(1); `iopath bench fs_mark -d` lists them all.

Examples:
  iopath bench fs_mark -d /tmp/a -n 100 -s 4096 -L 5
  iopath bench fs_mark -S 1 -D 100 -N 1000 -d disk.img:/fs_mark -s 65536 -t 4 -w 4096
  iopath bench --target sim:array-2010 --fs ext3 fs_mark -d /a -F -s 65536"
    )]
    FsMark(Arguments),
    /// Run jobs of reads and writes
    #[command(after_help = "\
JOB is a job file of fio(1), or - for standard input; --key=value changes every job of it.
Without a file --name=.. opens jobs, as for fio. Output: --output=FILE,
--output-format=normal,json,json+,terse. Others: --minimal, --section=NAME, --parse-only.

Examples:
  iopath bench fio job.fio
  iopath bench --target disk.img fio job.fio --runtime=10 --time_based
  iopath bench --target sim:disk-7200 fio --name=a --rw=randread --size=1g --direct=1")]
    Fio(Arguments),
    /// Create, stat and remove directories and files, by many tasks
    #[command(after_help = "\
The options are those of mdtest; --tasks N (or -np N) says how many tasks there are.

Examples:
  iopath bench mdtest -n 1000 -d /tmp/md
  iopath bench mdtest --tasks 4 -F -C -T -r -n 100000 -d disk.img:/md
  iopath bench --target sim:flash-nvme mdtest --tasks 8 -u -z 2 -b 3 -I 100 -d /md")]
    Mdtest(Arguments),
    /// Files are created, looked up, labelled and destroyed below their names, on our path
    #[command(
        name = "mds-survey",
        after_help = "\
The settings are the variables of the script, in the environment or as NAME=VALUE: thrlo,
thrhi, dir_count, file_count, tests_str, start_number, layer, rslt_loc, rslt.

Examples:
  iopath bench --target disk.img mds-survey thrlo=1 thrhi=4 file_count=100000 dir_count=1
  iopath bench --target sim:flash-nvme mds-survey file_count=20000 layer=osd"
    )]
    MdsSurvey(Arguments),
    /// Run sysbench's file I/O test
    #[command(after_help = "\
The options are those of sysbench fileio, of version 1.0 or, with --test=fileio, of 0.4, whose
output is printed then. On a modelled machine the files are prepared before the clock starts.

Examples:
  iopath bench --target disk.img:/d sysbench fileio --file-total-size=64M prepare
  iopath bench --target disk.img:/d sysbench fileio --file-total-size=64M --file-test-mode=rndrw run
  iopath bench --target sim:disk-7200 sysbench --test=fileio --num-threads=16 --max-requests=1000
      --file-total-size=64M --file-test-mode=rndrw run")]
    Sysbench(Arguments),
}

#[derive(Args)]
struct Arguments {
    /// The tool's own options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    arguments: Vec<OsString>,
}

/// What follows the name of the `tool` is the tool's, also where we have an option of that name
/// (`fio --direct=1`): says so with `--`. Asking for help is left as it is.
pub fn with_options_of_the_tool(mut args: Vec<OsString>, tool: Option<&String>) -> Vec<OsString> {
    let after = |from: usize, word: &str| {
        args[from..].iter().position(|arg| arg == word).map(|at| from + at + 1)
    };
    let first = after(1, "bench").zip(tool).and_then(|(bench, tool)| after(bench, tool));
    let Some(first) = first else { return args };
    let is_option = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-");
    let ours = |arg: &OsString| ["-h", "--help", "--"].iter().any(|word| arg == word);
    if args.get(first).is_some_and(|arg| is_option(arg) && !ours(arg)) {
        args.insert(first, OsString::from("--"));
    }
    args
}

/// Runs `bench`.
///
/// # Errors
/// The place cannot be used, a command line or job file is wrong, output cannot be written.
pub fn run(app: &mut App, options: &Options) -> Result<ExitCode> {
    let machine = Machine {
        fs: options.fs.clone(),
        elevator: options.elevator.clone(),
        tunables: options.tunable.clone(),
        noidle: options.noidle,
        seed: options.seed,
        size: options.size,
    };
    let place = options.target.as_deref().map(|target| Where::parse(target, &machine));
    let place = place.transpose()?;
    let stop = options.stop_after;
    match &options.tool {
        Tool::FsMark(tool) => bench::fs_mark::run(app, place, &machine, stop, &tool.arguments),
        Tool::Sysbench(tool) => bench::sysbench::run(app, place, &machine, stop, &tool.arguments),
        Tool::Fio(tool) => {
            let lenient = options.compat == "lenient";
            bench::fio::run(app, place, &machine, stop, lenient, &tool.arguments)
        }
        Tool::Mdtest(tool) => bench::mdtest::run(app, place, &machine, stop, &tool.arguments),
        Tool::MdsSurvey(tool) => {
            bench::mds_survey::run(app, place, &machine, stop, &tool.arguments)
        }
    }
}
