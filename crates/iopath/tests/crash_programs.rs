//! Known ways to lose data are found again, in real programs on a recorded mount: SQLite with each
//! journal mode and each `synchronous`, git with and without `core.fsync=all`. The checks
//! distinguish integrity and durability: the modes that are known to be safe stay so. Needs FUSE.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const IOPATH: &str = env!("CARGO_BIN_EXE_iopath");

/// Makes a database that is durable, then changes every row twice: `$1` is the journal mode, `$2`
/// the value of `synchronous`.
const SQLITE: &str = r#"
sqlite3 db >/dev/null <<END
PRAGMA page_size=1024;
PRAGMA journal_mode=$1;
PRAGMA synchronous=EXTRA;
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, n INT);
CREATE INDEX i ON t(b);
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<60)
  INSERT INTO t SELECT x, hex(randomblob(60)), 0 FROM c;
END
sync db .
sqlite3 db >/dev/null <<END
PRAGMA journal_mode=$1;
PRAGMA synchronous=$2;
.shell "$IOPATH" crash mark ready
UPDATE t SET b=hex(randomblob(60)), n=1;
.shell "$IOPATH" crash mark "committed 1"
UPDATE t SET b=hex(randomblob(60)), n=2;
.shell "$IOPATH" crash mark "committed 2"
END
"#;

const SQLITE_CHECK: &str = r#"
grep -q ready "$IOPATH_CRASH_MARKS" || exit 0
n=$(grep -c committed "$IOPATH_CRASH_MARKS")
ok=$(sqlite3 db "PRAGMA integrity_check" 2>&1 | head -1)
test "$ok" = ok || { echo "integrity: $ok"; exit 1; }
set -- $(sqlite3 db "SELECT min(n), max(n) FROM t" | tr '|' ' ')
test "$1" = "$2" || { echo "integrity: half a transaction"; exit 1; }
test "$1" -ge "$n" || { echo "durability: committed $n, found $1"; exit 1; }
"#;

/// Commits three times; `$1` is the value of `core.fsync`.
const GIT: &str = r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1
git init -q . 2>/dev/null
git config core.fsync "$1"
rm -rf .git/hooks
find . -print0 | xargs -0 sync
"$IOPATH" crash mark ready
for i in 1 2 3; do
  echo "round $i" > f
  git add f
  git -c gc.auto=0 commit -qm "round $i"
  "$IOPATH" crash mark "committed $i"
done
"#;

const GIT_CHECK: &str = r#"
export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1
grep -q ready "$IOPATH_CRASH_MARKS" || exit 0
n=$(grep -c committed "$IOPATH_CRASH_MARKS")
git -c safe.directory='*' fsck --full > out 2>&1 ||
  { echo "integrity: $(grep -v '^notice' out | head -1)"; exit 1; }
got=$(git -c safe.directory='*' log --oneline 2>/dev/null | wc -l)
test "$got" -ge "$n" || { echo "durability: committed $n, found $got"; exit 1; }
"#;

/// Records a program and explores it; answers what was found: `integrity`, `durability`.
fn found(fs: &str, program: &str, args: &[&str], check: &str) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("run.log");
    let mut record = Command::new(IOPATH);
    record.args(["-q", "crash", "record"]).arg(&log).args(["--fs", fs, "--", "sh", "-c", program]);
    let output = record.arg("sh").args(args).env("IOPATH", IOPATH).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = explore(&log, check);
    assert!(document["judged"].as_u64() > Some(40), "{document}");
    let kind = |finding: &Value| {
        let message = finding["message"].as_str().unwrap();
        assert_eq!(finding["verdict"], "refused", "{finding}");
        let said = message.strip_prefix("check: exit status 1: ").unwrap_or(message);
        said.split(':').next().unwrap().to_owned()
    };
    let kinds = document["findings"].as_array().unwrap().iter().map(kind).collect();
    println!("{fs} {args:?}: {kinds:?} in {} states", document["judged"]);
    kinds
}

fn explore(log: &Path, check: &str) -> Value {
    let mut explore = Command::new(IOPATH);
    explore.args(["--json", "crash", "explore"]).arg(log);
    explore.args(["--all-subsets", "2", "--samples", "6", "--singles", "16", "--"]);
    let output = explore.args(["sh", "-c", check]).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn is(kinds: &[&str]) -> BTreeSet<String> {
    kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

/// `synchronous=OFF` corrupts the database. DELETE with FULL, SQLite's default, ends a commit by an
/// unlink that nothing syncs, and WAL with NORMAL does not sync: they keep integrity and may lose
/// the last commit. The others lose nothing.
#[test]
fn sqlite_keeps_what_its_modes_are_known_to_keep() {
    let sqlite =
        |fs, journal, synchronous| found(fs, SQLITE, &[journal, synchronous], SQLITE_CHECK);
    for fs in ["ext4", "xfs"] {
        assert!(sqlite(fs, "DELETE", "OFF").contains("integrity"), "{fs}");
    }
    assert_eq!(sqlite("ext4", "DELETE", "FULL"), is(&["durability"]));
    assert_eq!(sqlite("ext4", "WAL", "NORMAL"), is(&["durability"]));
    for (journal, synchronous) in [("DELETE", "EXTRA"), ("PERSIST", "FULL"), ("WAL", "FULL")] {
        assert_eq!(sqlite("ext4", journal, synchronous), is(&[]), "{journal} {synchronous}");
    }
    assert_eq!(sqlite("xfs", "WAL", "FULL"), is(&[]));
}

/// git's default leaves damaged repositories. `core.fsync=all` keeps them whole, and may lose the
/// last commit: the rename of the reference is not synced.
#[test]
fn git_is_whole_with_core_fsync_all() {
    assert!(found("xfs", GIT, &["committed"], GIT_CHECK).contains("integrity"));
    assert_eq!(found("xfs", GIT, &["all"], GIT_CHECK), is(&["durability"]));
}
