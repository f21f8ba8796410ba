//! What to make, and the words of `mkfs.xfs` for it.

use base::Timespec;
use base::errno::Errno;
use vfs::quota::Kind;

use crate::format::dquot::QuotaFlags;

/// What to make. `Default` is what `mkfs.xfs` 6.1 makes of the whole device.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each feature")]
pub struct MkfsOptions {
    /// Bytes of the file system; None for the whole device.
    pub size: Option<u64>,
    /// Bytes per block: 1 to 16 KiB.
    pub block_size: u32,
    /// Bytes per sector, 512..=`block_size`.
    pub sector_size: u32,
    /// Allocation groups; None for the default of the size.
    pub ag_count: Option<u32>,
    /// Bytes of an allocation group; None for what their number makes.
    pub ag_size: Option<u64>,
    /// Stripe unit in bytes and units per stripe; None for no stripe.
    pub stripe: Option<(u32, u32)>,
    /// Bytes per inode: 512, 1024 or 2048.
    pub inode_size: u32,
    /// Share of the blocks that inodes may take, percent; None for the default of the size.
    pub inode_percent: Option<u8>,
    /// Bytes per directory block; None for the larger one of 4096 and the block size.
    pub dir_block_size: Option<u32>,
    /// Bytes of the log; None for the default of the size.
    pub log_size: Option<u64>,
    /// Bytes of the device of an external log; None for a log in the file system.
    pub log_device: Option<u64>,
    /// Stripe unit of the log in bytes; None for that of the data, or none.
    pub log_sunit: Option<u32>,
    /// A btree of the free inodes.
    pub finobt: bool,
    /// A btree of the owners of all blocks.
    pub rmapbt: bool,
    /// Blocks may be shared.
    pub reflink: bool,
    /// Times beyond 2038.
    pub bigtime: bool,
    /// The groups count the blocks of their inode btrees.
    pub inobtcount: bool,
    /// Inode chunks may have holes.
    pub sparse: bool,
    /// Wide extent counts.
    pub nrext64: bool,
    /// The log may hold exchanges of file ranges.
    pub exchange: bool,
    /// Every name has a pointer back to its directory.
    pub parent: bool,
    /// Names of directories are compared without regard to case (`-n version=ci`).
    pub ignore_case: bool,
    /// What the root's attribute `trusted.xfs:autofsck` says; None for the default.
    pub autofsck: Option<&'static str>,
    /// What no option decides is as mkfs.xfs 7.2 does it, not 6.1: times of access and generations
    /// of the first inodes, and that attribute by default.
    pub newest: bool,
    /// Bytes of a realtime section on a device of its own; None for no section.
    pub realtime: Option<u64>,
    /// Bytes of an extent of the section; None for 4 KiB, or a block.
    pub realtime_extent: Option<u32>,
    /// Bytes of each group of the section; None for what their number makes.
    pub realtime_group_size: Option<u64>,
    /// Groups of the section; None for the default of the size.
    pub realtime_group_count: Option<u32>,
    /// The file system's own inodes have directories, and a realtime section has groups.
    pub metadir: bool,
    /// What is counted, and which limits hold, from the first mount on.
    pub quota: QuotaFlags,
    /// What the root hands down to new files.
    pub root: RootDefaults,
    /// Volume name, at most 12 bytes.
    pub label: String,
    /// UUID; None for a random one.
    pub uuid: Option<[u8; 16]>,
    /// The time of all time stamps; None for now.
    pub now: Option<Timespec>,
    /// Generation of the first inodes but the root, where they have one; None for a random one.
    pub generation: Option<u32>,
    /// The device is known to read as zeroes (a new sparse file): nothing needs to be zeroed.
    pub assume_zeroes: bool,
}

/// What the root directory hands down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RootDefaults {
    /// New files lie in the realtime section.
    pub realtime: bool,
    /// New files are mapped without a page cache, where the device can do that.
    pub dax: bool,
    /// New files belong to this project.
    pub project: Option<u32>,
    /// New files get space in units of so many blocks.
    pub extent_blocks: Option<u32>,
    /// New files copy on write in units of so many blocks.
    pub cow_blocks: Option<u32>,
}

impl RootDefaults {
    /// Takes a word of `-d`, whose value is such a number, or such a flag.
    fn set(
        &mut self,
        key: &str,
        number: Result<u32, &'static str>,
        flag: Result<bool, &'static str>,
    ) -> Result<(), &'static str> {
        match key {
            "rtinherit" => self.realtime = flag?,
            "daxinherit" => self.dax = flag?,
            "projinherit" => self.project = Some(number?),
            "extszinherit" => self.extent_blocks = Some(number?),
            "cowextsize" => self.cow_blocks = Some(number?),
            _ => return Err("not known, or cannot be made"),
        }
        Ok(())
    }
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            size: None,
            block_size: 4096,
            sector_size: 512,
            ag_count: None,
            ag_size: None,
            stripe: None,
            inode_size: 512,
            inode_percent: None,
            dir_block_size: None,
            log_size: None,
            log_device: None,
            log_sunit: None,
            finobt: true,
            rmapbt: false,
            reflink: true,
            bigtime: true,
            inobtcount: true,
            sparse: true,
            nrext64: false,
            exchange: false,
            parent: false,
            ignore_case: false,
            autofsck: None,
            newest: false,
            realtime: None,
            realtime_extent: None,
            realtime_group_size: None,
            realtime_group_count: None,
            metadir: false,
            quota: QuotaFlags::empty(),
            root: RootDefaults::default(),
            label: String::new(),
            uuid: None,
            now: None,
            generation: None,
            assume_zeroes: false,
        }
    }
}

/// Kernels, and what mkfs.xfs 7.2 makes by its conf file `lts_NAME.conf` for each; the last one is
/// its default.
pub const COMPAT: [&str; 9] = ["4.19", "5.4", "5.10", "5.15", "6.1", "6.6", "6.12", "6.18", "7.2"];

impl MkfsOptions {
    /// What mkfs.xfs 7.2 makes for a kernel: None for one that is not in [`COMPAT`].
    pub fn compat(kernel: &str) -> Option<MkfsOptions> {
        let index = COMPAT.iter().position(|&name| name == kernel)?;
        let since = |name: &str| COMPAT.iter().position(|&other| other == name) <= Some(index);
        let newest = since("6.18");
        Some(MkfsOptions {
            reflink: since("5.4"),
            bigtime: since("5.15"),
            inobtcount: since("5.15"),
            rmapbt: since("6.6"),
            nrext64: since("6.6"),
            exchange: newest,
            parent: newest,
            autofsck: (!newest).then_some("none"),
            newest: true,
            ..MkfsOptions::default()
        })
    }
}

/// A word of the options that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("-{section} {word}: {reason}")]
pub struct OptionError {
    /// The option's letter.
    pub section: char,
    /// The word.
    pub word: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// A number with the suffixes of `mkfs.xfs`: `k`, `m`, `g`, `t` (powers of 1024), `s` (sectors of
/// 512 bytes), `b` (blocks of `block_size` bytes).
fn number(text: &str, block_size: u32) -> Result<u64, Errno> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "s" => 512,
        "b" => u64::from(block_size),
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        _ => return Err(Errno::EINVAL),
    };
    let value: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    value.checked_mul(unit).ok_or(Errno::ERANGE)
}

impl MkfsOptions {
    /// The value of the root's attribute, if it has it.
    pub(super) fn autofsck_value(&self) -> Option<&'static str> {
        let repairable = self.newest && self.parent && self.rmapbt;
        self.autofsck.or(repairable.then_some("repair"))
    }

    /// Takes the words of one option of `mkfs.xfs`: section `b`, `d`, `i`, `l`, `m`, `n`, `r` or
    /// `s`, words between commas, e.g. `edit('m', "rmapbt=1,reflink=0")`.
    ///
    /// # Errors
    /// The first word that is not known or has no value that can be used.
    pub fn edit(&mut self, section: char, text: &str) -> Result<(), OptionError> {
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, "1"));
            self.set(section, key, value).map_err(|reason| OptionError {
                section,
                word: word.to_string(),
                reason,
            })?;
        }
        Ok(())
    }

    fn set(&mut self, section: char, key: &str, value: &str) -> Result<(), &'static str> {
        const BAD: &str = "not a number that fits";
        let bytes = || number(value, self.block_size).map_err(|_| BAD);
        let small = || bytes().and_then(|value| u32::try_from(value).map_err(|_| BAD));
        // Numbers of sectors, as `sunit` and `swidth` count.
        let sectors = || small().and_then(|value| value.checked_mul(512).ok_or(BAD));
        let flag = || match value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err("neither 0 nor 1"),
        };
        let fixed = |wanted: bool| match flag()? == wanted {
            true => Ok(()),
            false => Err("cannot be made"),
        };
        let stripe = self.stripe;
        match (section, key) {
            ('b', "size") => self.block_size = small()?,
            ('s', "size" | "sectsize") | ('d', "sectsize") => self.sector_size = small()?,
            ('d', "size") => self.size = Some(bytes()?),
            ('d', "agcount") => self.ag_count = Some(small()?),
            ('d', "su") => self.stripe = Some((small()?, stripe.map_or(1, |(_, width)| width))),
            ('d', "sw") => self.stripe = Some((stripe.map_or(0, |(unit, _)| unit), small()?)),
            ('d', "sunit") => self.stripe = Some((sectors()?, stripe.map_or(1, |s| s.1))),
            ('d', "swidth") => {
                let unit = stripe.map(|(unit, _)| unit).filter(|&unit| unit > 0);
                let unit = unit.ok_or("needs sunit before it")?;
                self.stripe = Some((unit, sectors()? / unit));
            }
            ('d', "noalign") => self.stripe = None,
            ('d', "agsize") => self.ag_size = Some(bytes()?),
            ('r', key) => self.set_realtime(key, small(), bytes())?,
            ('i', "size") => self.inode_size = small()?,
            ('i', "maxpct") => {
                self.inode_percent = Some(u8::try_from(small()?).map_err(|_| BAD)?);
            }
            ('i', "sparse") => self.sparse = flag()?,
            ('i', "nrext64") => self.nrext64 = flag()?,
            ('i', "exchange") => self.exchange = flag()?,
            ('n', "parent") => self.parent = flag()?,
            ('m', "autofsck") => self.autofsck = Some(autofsck(value)?),
            ('n', "size") => self.dir_block_size = Some(small()?),
            ('i', "perblock") => {
                let count = small()?;
                self.inode_size = self.block_size.checked_div(count).ok_or(BAD)?;
            }
            ('n', "ftype")
            | ('m', "crc")
            | ('l', "internal" | "lazy-count")
            | ('i', "projid32bit") => fixed(true)?,
            ('n', "version") if value == "ci" => self.ignore_case = true,
            ('n' | 'l', "version") | ('i', "attr") if value == "2" => {}
            ('l', "size") => self.log_size = Some(bytes()?),
            ('l', "su") => self.log_sunit = Some(small()?),
            ('l', "sunit") => self.log_sunit = Some(sectors()?),
            ('m', "uuid") => self.uuid = Some(uuid(value).ok_or("not a UUID")?),
            ('m', key) => self.set_metadata(key, flag())?,
            ('d', key) => self.root.set(key, small(), flag())?,
            _ => return Err("not known, or cannot be made"),
        }
        Ok(())
    }
}

impl MkfsOptions {
    /// Takes a word of `-m`, whose value is such a flag.
    fn set_metadata(
        &mut self,
        key: &str,
        flag: Result<bool, &'static str>,
    ) -> Result<(), &'static str> {
        match key {
            "finobt" => self.finobt = flag?,
            "rmapbt" => self.rmapbt = flag?,
            "reflink" => self.reflink = flag?,
            "bigtime" => self.bigtime = flag?,
            "inobtcount" => self.inobtcount = flag?,
            "metadir" => {
                self.metadir = flag?;
                // Older versions know nothing of it.
                self.newest |= self.metadir;
            }
            _ => {
                let quota = quota_flags(key).ok_or("not known, or cannot be made")?;
                if flag? {
                    self.quota |= quota;
                    (self.metadir, self.newest) = (true, true);
                }
            }
        }
        Ok(())
    }

    /// Takes a word of `-r`, whose value is such a number, or so many bytes.
    fn set_realtime(
        &mut self,
        key: &str,
        number: Result<u32, &'static str>,
        bytes: Result<u64, &'static str>,
    ) -> Result<(), &'static str> {
        match key {
            "extsize" => self.realtime_extent = Some(number?),
            "size" => self.realtime = Some(bytes?),
            "rgcount" => self.realtime_group_count = Some(number?),
            "rgsize" => self.realtime_group_size = Some(bytes?),
            "noalign" => {}
            _ => return Err("not known, or cannot be made"),
        }
        Ok(())
    }
}

fn autofsck(text: &str) -> Result<&'static str, &'static str> {
    match text {
        "0" | "none" => Ok("none"),
        "1" | "repair" => Ok("repair"),
        "check" => Ok("check"),
        "optimize" => Ok("optimize"),
        _ => Err("neither 0, 1, none, check, optimize nor repair"),
    }
}

/// What a word of `-m` says of quota: the inodes of its records lie in the metadata directory.
fn quota_flags(word: &str) -> Option<QuotaFlags> {
    let (letter, rest) = word.split_at_checked(1)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name().starts_with(letter))?;
    match rest {
        "quota" => Some(QuotaFlags::counted(kind) | QuotaFlags::enforced(kind)),
        "qnoenforce" => Some(QuotaFlags::counted(kind)),
        _ => None,
    }
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    uuid::Uuid::try_parse(text).ok().map(|uuid| *uuid.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_taken_or_named() {
        let mut options = MkfsOptions::default();
        options.edit('m', "rmapbt=1,reflink=0,crc=1").expect("known");
        options.edit('d', "su=64k,sw=4,agcount=5").expect("known");
        options.edit('l', "size=20m").expect("known");
        assert!(options.rmapbt && !options.reflink);
        assert_eq!(options.stripe, Some((65536, 4)));
        assert_eq!((options.ag_count, options.log_size), (Some(5), Some(20 << 20)));
        for (section, words) in
            [('m', "crc=0"), ('m', "quota=1"), ('d', "su=x"), ('n', "version=3"), ('r', "zoned=1")]
        {
            let error = options.edit(section, words).expect_err("refused");
            assert_eq!((error.section, error.word.as_str()), (section, words));
        }
    }
}
