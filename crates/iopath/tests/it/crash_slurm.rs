//! `docs/cluster.md` on a real Slurm: a controller and two nodes on this host run the script of
//! that page as it stands; one part is killed midway and goes on; the parts together are one
//! exploration.
//! `IOPATH_SLURM=1`, root, and Debian's `slurm-wlm` and `munge`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const IOPATH: &str = env!("CARGO_BIN_EXE_iopath");

const SAVE: &str = r#"
for i in 1 2 3; do echo "save $i" > new; mv new file; sync .; done
"#;

/// A controller and two nodes, on ports of their own, in the directory `$1`.
const BEGIN: &str = r#"
D=$1; host=$(hostname -s)
mkdir -p "$D/state" "$D/n1" "$D/n2" /run/munge
chown munge: /run/munge
pgrep -x munged > /dev/null || runuser -u munge -- munged
cat > "$D/slurm.conf" <<END
ClusterName=iopath
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/%n
SlurmctldPidFile=$D/controller.pid
SlurmdPidFile=$D/%n.pid
SlurmctldLogFile=$D/controller.log
SlurmdLogFile=$D/%n.log
SlurmctldPort=36817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=36821 CPUs=1
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=36822 CPUs=1
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
END
slurmctld -c; slurmd -N n1; slurmd -N n2
for i in $(seq 120); do
  test "$(sinfo -h -o %D -t idle)" = 2 && exit 0
  sleep 0.5
done
echo "the nodes do not come" >&2; exit 1
"#;

/// Ends what was begun when dropped.
struct Slurm<'a>(&'a Path);

impl Slurm<'_> {
    fn shell(&self, script: &str, args: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-euc", script, "sh"]).args(args).current_dir(self.0);
        let path = format!(
            "{}:/usr/sbin:{}",
            Path::new(IOPATH).parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        command.env("PATH", path).env("SLURM_CONF", self.0.join("slurm.conf"));
        command.output().expect("a shell")
    }

    fn ok(&self, script: &str, args: &[&str]) -> String {
        let output = self.shell(script, args);
        let (out, errors) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {}: {errors}", output.status);
        String::from_utf8_lossy(out).into_owned()
    }
}

impl Drop for Slurm<'_> {
    fn drop(&mut self) {
        if self.0.join("slurm.conf").exists() {
            self.shell("scontrol shutdown", &[]);
        }
    }
}

/// What the page has between two texts, the first time.
fn between(begin: &str, end: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster.md");
    let page = std::fs::read_to_string(page).unwrap();
    let start = page.find(begin).expect(begin) + begin.len();
    page[start..][..page[start..].find(end).expect(end)].to_owned()
}

/// The script on the page.
fn script() -> String {
    between("```sh\n", "```")
}

/// The command of the manifest for Kubernetes, for each index, with its volumes as directories: the
/// parts together are one exploration.
#[test]
fn the_manifest_for_kubernetes_has_a_command_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let here = Slurm(dir.path());
    for volume in ["input", "results"] {
        std::fs::create_dir(dir.path().join(volume)).unwrap();
    }
    std::fs::write(dir.path().join("input/check.sh"), "test ! -e file || test -s file\n").unwrap();
    here.ok("iopath crash record input/run.log --fs xfs -- sh -c \"$1\"", &[SAVE]);
    let script = between("            - |\n", "          resources:");
    let volume = |name: &str| format!("{}{name}", dir.path().display());
    let script =
        script.replace("/input", &volume("/input")).replace("/results", &volume("/results"));
    // Two parts are enough here.
    let parts = format!("/{} ", between("completions: ", "\n"));
    assert!(script.contains(&parts), "{script}");
    let script = script.replace(&parts, "/2 ");
    for index in 0..2 {
        here.ok(&format!("export JOB_COMPLETION_INDEX={index}; set +e\n{script}"), &[]);
    }
    let merged = here.shell("iopath crash merge results/*.jsonl", &[]);
    assert_eq!(merged.status.code(), Some(1), "{}", String::from_utf8_lossy(&merged.stderr));
    let merged: Value = serde_json::from_slice(&merged.stdout).unwrap();
    assert_eq!(merged["outcome"]["complete"], true);
    assert_eq!(merged["outcome"]["judged"], merged["outcome"]["distinct"]);
}

/// The script of the page asks for what the command has, wherever Slurm is not installed, too.
#[test]
fn the_page_has_a_script_for_slurm() {
    let script = script();
    for part in ["#SBATCH --array=1-4", "--shard \"$SLURM_ARRAY_TASK_ID/", "0|1) exit 0"] {
        assert!(script.contains(part), "{script}");
    }
}

#[test]
fn slurm_runs_a_campaign_in_parts() {
    if std::env::var_os("IOPATH_SLURM").is_none() {
        println!("IOPATH_SLURM=1 runs this test on a Slurm of its own");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let slurm = Slurm(dir.path());
    slurm.ok("iopath crash record run.log --fs xfs -- sh -c \"$1\"", &[SAVE]);
    std::fs::write(dir.path().join("check.sh"), "sleep 0.05; test ! -e file || test -s file\n")
        .unwrap();
    std::fs::write(dir.path().join("crash.sbatch"), script()).unwrap();
    slurm.ok(BEGIN, &[&dir.path().display().to_string()]);
    slurm.ok("mkdir results", &[]);
    let submit = "export LOG=$PWD/run.log CHECK=$PWD/check.sh RESULTS=$PWD/results
      sbatch --parsable crash.sbatch";
    let job = slurm.ok(submit, &[]).trim().to_owned();
    // One part is taken away while it works, and comes again.
    slurm.ok(
        "until test \"$(squeue -h -t R -j \"$1_2\" | wc -l)\" = 1; do sleep 0.2; done
         sleep 1; scontrol requeue \"$1_2\"",
        &[&job],
    );
    slurm.ok("while test -n \"$(squeue -h -j \"$1\")\"; do sleep 0.5; done", &[&job]);
    let merged = slurm.shell("iopath crash merge results/*.jsonl", &[]);
    assert_eq!(merged.status.code(), Some(1), "{}", String::from_utf8_lossy(&merged.stderr));
    let merged: Value = serde_json::from_slice(&merged.stdout).unwrap();
    let whole = slurm.shell("iopath --json crash explore run.log -- sh \"$PWD/check.sh\"", &[]);
    let whole: Value = serde_json::from_slice(&whole.stdout).unwrap();
    for key in ["judged", "wrong", "distinct", "complete"] {
        assert_eq!(merged["outcome"][key], whole[key], "{key}");
    }
}
