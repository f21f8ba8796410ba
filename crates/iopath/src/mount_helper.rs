//! The helper of mount(8): this program under the name `mount.iopath` or `mount.fuse.iopath`.
//!
//! mount(8), fstab, autofs and systemd's mount units call
//! `mount.TYPE SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, and expect its exit
//! statuses. The words become those of `iopath mount`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::mount::MountFlags;

/// Exit status: wrong usage.
pub const USAGE: u8 = 1;
/// Exit status: it could not be mounted.
pub const FAILED: u8 = 32;

/// Names of this program under which it is the helper.
const NAMES: [&str; 2] = ["mount.iopath", "mount.fuse.iopath"];
/// Options that are for mount(8), systemd and people.
const OF_OTHERS: [&str; 12] = [
    "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev",
    "sync", "async",
];

/// What mount(8) asks for.
#[derive(PartialEq, Eq, Debug)]
pub enum Asked {
    /// Run the command with these arguments.
    Mount(Vec<OsString>),
    /// Change the flags of a mount that is there.
    Remount { dir: OsString, flags: u32 },
    /// Nothing: `-f`.
    Nothing,
}

/// What the program is asked for as a helper; none where it is called by another name.
///
/// # Errors
/// A sentence about what is wrong.
pub fn asked(args: &[OsString]) -> Option<Result<Asked, String>> {
    let name = Path::new(args.first()?).file_name()?.to_str()?;
    NAMES.contains(&name).then(|| read(&args[1..]))
}

fn read(args: &[OsString]) -> Result<Asked, String> {
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let (mut fake, mut sloppy) = (false, false);
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => options.extend(rest.next().map(|list| split(list)).unwrap_or_default()),
            // Names that mount(8) has used already.
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'f' => fake = true,
                        's' => sloppy = true,
                        'n' | 'v' | 'r' | 'w' => {}
                        other => return Err(format!("-{other} is not known")),
                    }
                }
            }
            _ => places.push(word.clone()),
        }
    }
    let [source, dir] = places.as_slice() else {
        return Err("usage: mount.iopath SOURCE DIR [-sfnv] [-o OPTIONS]".to_owned());
    };
    if options.iter().any(|word| word == "remount") {
        let flags = remount(&options)?;
        return Ok(Asked::Remount { dir: dir.clone(), flags });
    }
    let ours: Vec<OsString> = options.into_iter().filter(|word| !is_of_others(word)).collect();
    let is_known = |word: &OsString| {
        word.to_str().is_some_and(|text| text.parse::<crate::app::MountWord>().is_ok())
    };
    let ours: Vec<OsString> = ours.into_iter().filter(|word| !sloppy || is_known(word)).collect();
    if fake {
        return Ok(Asked::Nothing);
    }
    let mut line: Vec<OsString> = vec!["iopath".into(), "mount".into()];
    if !ours.is_empty() {
        line.extend(["-o".into(), ours.join(OsStr::new(","))]);
    }
    line.extend(["--".into(), source.clone(), dir.clone()]);
    Ok(Asked::Mount(line))
}

/// The words of an option list.
fn split(list: &OsStr) -> Vec<OsString> {
    let words = list.as_bytes().split(|&byte| byte == b',').filter(|word| !word.is_empty());
    words.map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

fn is_of_others(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    let prefixes = ["x-", "X-", "comment=", "uhelper=", "helper="];
    OF_OTHERS.contains(&&*text) || prefixes.iter().any(|prefix| text.starts_with(prefix))
}

/// The flags of a remount. The kernel alone holds to them; whatever else is asked for would be
/// asked for in vain.
fn remount(options: &[OsString]) -> Result<u32, String> {
    let mut flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
    for word in options.iter().filter(|word| *word != "remount" && !is_of_others(word)) {
        match word.to_string_lossy().as_ref() {
            "ro" => flags |= MountFlags::RDONLY,
            "rw" => flags -= MountFlags::RDONLY,
            "suid" => flags -= MountFlags::NOSUID,
            "nosuid" => flags |= MountFlags::NOSUID,
            "dev" => flags -= MountFlags::NODEV,
            "nodev" => flags |= MountFlags::NODEV,
            "exec" => flags -= MountFlags::NOEXEC,
            "noexec" => flags |= MountFlags::NOEXEC,
            // What /proc/mounts shows of the mount, which mount(8) repeats.
            "noatime" | "relatime" | "default_permissions" | "allow_other" => {}
            other
                if ["user_id=", "group_id=", "max_read="].iter().any(|p| other.starts_with(p)) => {}
            other => {
                return Err(format!(
                    "remount: {other} cannot be changed while it is mounted; there are ro, rw, \
                     suid, nosuid, dev, nodev, exec, noexec"
                ));
            }
        }
    }
    Ok(flags.bits())
}

/// Changes the flags of a mount.
///
/// # Errors
/// The kernel refuses.
pub fn change(dir: &OsStr, flags: u32) -> std::io::Result<()> {
    let flags = MountFlags::from_bits_retain(flags);
    Ok(rustix::mount::mount_remount(dir, flags, c"")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_mount_says_becomes_the_command() {
        for (line, wanted) in [
            ("/sbin/mount.iopath a.img /mnt", "iopath mount -- a.img /mnt"),
            (
                "mount.fuse.iopath a.img@2 /mnt -n -o rw,noauto,x-systemd.automount,data=journal",
                "iopath mount -o rw,data=journal -- a.img@2 /mnt",
            ),
            (
                "mount.iopath a.img /mnt -sv -o ro,nonsense -t fuse.iopath",
                "iopath mount -o ro -- a.img /mnt",
            ),
        ] {
            assert_eq!(asked(&words(line)), Some(Ok(Asked::Mount(words(wanted)))), "{line}");
        }
        assert_eq!(asked(&words("mount.iopath a.img /mnt -f")), Some(Ok(Asked::Nothing)));
        assert_eq!(asked(&words("iopath mount a.img /mnt")), None);
        assert!(asked(&words("mount.iopath a.img")).is_some_and(|asked| asked.is_err()));
    }

    #[test]
    fn a_remount_changes_what_the_kernel_checks_and_refuses_the_rest() {
        let asked_for = |options: &str| asked(&words(&format!("mount.iopath a /m -o {options}")));
        let read_only = asked_for("remount,ro");
        assert!(matches!(read_only, Some(Ok(Asked::Remount { flags, .. })) if flags & 1 == 1));
        let shown = asked_for("rw,noatime,user_id=0,group_id=0,max_read=131072,remount,noexec");
        assert!(matches!(shown, Some(Ok(Asked::Remount { flags, .. })) if flags & 8 == 8));
        let refused = asked_for("remount,data=journal");
        assert!(refused.is_some_and(|asked| asked.unwrap_err().contains("data=journal")));
    }
}
