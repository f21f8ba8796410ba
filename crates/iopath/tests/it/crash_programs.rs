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

/// Commits three times to a database of LMDB; `$1` is 1 where its commits are synced.
const LMDB: &str = r#"
/usr/bin/python3 - "$1" <<'END'
import lmdb, os, subprocess, sys
sync = sys.argv[1] == "1"
def mark(text):
    subprocess.run([os.environ["IOPATH"], "crash", "mark", text], check=True)
env = lmdb.open("db", map_size=1 << 22, sync=True)
with env.begin(write=True) as txn:
    for key in range(200):
        txn.put(b"%04d" % key, b"0" * 100)
env.sync(True)
env.close()
for path in ("db/data.mdb", "db", "."):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
mark("ready")
env = lmdb.open("db", map_size=1 << 22, sync=sync, metasync=sync)
for round in (1, 2, 3):
    with env.begin(write=True) as txn:
        for key in range(200):
            txn.put(b"%04d" % key, b"%d" % round * 100)
    mark("committed %d" % round)
env.close()
END
"#;

const LMDB_CHECK: &str = r#"
grep -q ready "$IOPATH_CRASH_MARKS" || exit 0
n=$(grep -c committed "$IOPATH_CRASH_MARKS")
/usr/bin/python3 - "$n" <<'END' || { test $? -eq 1 || echo "integrity: it crashes"; exit 1; }
import lmdb, sys
committed = int(sys.argv[1])
def fail(text):
    print(text)
    sys.exit(1)
try:
    with lmdb.open("db", map_size=1 << 22).begin() as txn:
        rows = list(txn.cursor())
except lmdb.Error as error:
    fail("integrity: %s" % error)
values = {value for _, value in rows}
if len(rows) != 200 or len(values) != 1:
    fail("integrity: %d rows, %d kinds" % (len(rows), len(values)))
found = int(values.pop()[:1])
if found < committed:
    fail("durability: committed %d, found %d" % (committed, found))
END
"#;

/// Writes three batches to a database of LevelDB; `$1` is 1 where writes are synced.
const LEVELDB: &str = r#"
/usr/bin/python3 - "$1" <<'END'
import os, plyvel, subprocess, sys
sync = sys.argv[1] == "1"
def mark(text):
    subprocess.run([os.environ["IOPATH"], "crash", "mark", text], check=True)
db = plyvel.DB("db", create_if_missing=True)
with db.write_batch(sync=True) as batch:
    for key in range(50):
        batch.put(b"%04d" % key, b"0" * 100)
for path in ["db/" + name for name in os.listdir("db")] + ["db", "."]:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
mark("ready")
for round in (1, 2, 3):
    with db.write_batch(sync=sync) as batch:
        for key in range(50):
            batch.put(b"%04d" % key, b"%d" % round * 100)
    mark("committed %d" % round)
db.close()
END
"#;

const LEVELDB_CHECK: &str = r#"
grep -q ready "$IOPATH_CRASH_MARKS" || exit 0
n=$(grep -c committed "$IOPATH_CRASH_MARKS")
/usr/bin/python3 - "$n" <<'END'
import plyvel, sys
committed = int(sys.argv[1])
def fail(text):
    print(text)
    sys.exit(1)
try:
    rows = list(plyvel.DB("db"))
except plyvel.Error as error:
    fail("integrity: %s" % error)
values = {value for _, value in rows}
if len(rows) != 50 or len(values) != 1:
    fail("integrity: %d rows, %d kinds" % (len(rows), len(values)))
found = int(values.pop()[:1])
if found < committed:
    fail("durability: committed %d, found %d" % (committed, found))
END
"#;

/// Installs a package a second time, with other content; `$1` is an option of dpkg. Its database is
/// on the recorded disk, too.
const DPKG: &str = r#"
set -e
make() {
  rm -rf pkg; mkdir -p pkg/DEBIAN pkg/data
  printf 'Package: demo\nVersion: %s\nArchitecture: all\nMaintainer: a <a@b>\nDescription: demo\n' \
    "$1" > pkg/DEBIAN/control
  for i in 1 2 3; do head -c 6000 /dev/zero | tr '\0' "$1" > pkg/data/$i; done
  dpkg-deb --root-owner-group -b pkg "$TMP/demo-$1.deb" > /dev/null
  rm -rf pkg
}
TMP=$(mktemp -d); trap 'rm -rf "$TMP"' EXIT
make 1; make 2
mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates
: > root/var/lib/dpkg/status; : > root/var/lib/dpkg/available
install() {
  dpkg --root="$PWD/root" --log=/dev/null "$2" -i "$TMP/demo-$1.deb" > /dev/null
}
install 1 --no-force-unsafe-io
find root -print0 | xargs -0 sync
sync .
"$IOPATH" crash mark ready
install 2 "$1"
"$IOPATH" crash mark "committed 2"
"#;

const DPKG_CHECK: &str = r#"
grep -q ready "$IOPATH_CRASH_MARKS" || exit 0
for i in 1 2 3; do
  size=$(stat -c %s "root/data/$i" 2>/dev/null) || { echo "integrity: a file is missing"; exit 1; }
  test "$size" -eq 6000 || { echo "integrity: a file of $size bytes"; exit 1; }
  kinds=$(fold -w 1 "root/data/$i" | sort -u | tr -d '\n')
  case $kinds in 1|2) ;; *) echo "integrity: a file of other content"; exit 1;; esac
done
version=$(sed -n 's/^Version: //p' root/var/lib/dpkg/status)
case $version in 1|2) ;; *) echo "integrity: the database has version '$version'"; exit 1;; esac
if grep -q committed "$IOPATH_CRASH_MARKS"; then
  test "$version$(head -c 1 root/data/1)" = 22 || { echo "durability: installed 2"; exit 1; }
fi
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
    assert_eq!(sqlite("ext4", "DELETE", "EXTRA"), is(&[]));
    for journal in ["PERSIST", "TRUNCATE", "WAL"] {
        assert_eq!(sqlite("ext4", journal, "FULL"), is(&[]), "{journal}");
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

/// LMDB keeps its commits; with MDB_NOSYNC a cut damages the database.
#[test]
fn lmdb_is_safe_but_without_sync() {
    assert_eq!(found("ext4", LMDB, &["1"], LMDB_CHECK), is(&[]));
    for fs in ["ext4", "xfs"] {
        assert!(found(fs, LMDB, &["0"], LMDB_CHECK).contains("integrity"), "{fs}");
    }
}

/// LevelDB keeps batches that are written with `sync`; the others may be lost, as a whole.
#[test]
fn leveldb_keeps_what_is_written_with_sync() {
    assert_eq!(found("ext4", LEVELDB, &["1"], LEVELDB_CHECK), is(&[]));
    assert_eq!(found("ext4", LEVELDB, &["0"], LEVELDB_CHECK), is(&["durability"]));
}

/// dpkg leaves whole files, old or new; with `--force-unsafe-io`, the default of container images,
/// it leaves empty ones on XFS.
#[test]
fn dpkg_is_safe_but_with_unsafe_io() {
    let safe = found("xfs", DPKG, &["--no-force-unsafe-io"], DPKG_CHECK);
    assert!(!safe.contains("integrity"), "{safe:?}");
    assert!(found("xfs", DPKG, &["--force-unsafe-io"], DPKG_CHECK).contains("integrity"));
}
