//! Mount options as an experiment writes them, and mounting with them.

use std::sync::Arc;

use block::Queue;
use cache::PageCache;
use ext4::Ext4;
use ext4::MountOptions;
use ext4::mount_options::MountOption;
use rt::Cx;
use vfs::FileSystem;
use xfs::Xfs;

use crate::experiment::Filesystem;

/// The mount options of a list with commas; later ones win. An empty text gives the defaults.
///
/// # Errors
/// The option that is not known, and what is.
pub fn parse(text: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        one.parse::<MountOption>()?.apply(&mut options);
    }
    Ok(options)
}

/// The same for XFS, which a run may write to.
///
/// # Errors
/// As [`parse`].
pub fn parse_xfs(text: &str) -> Result<xfs::MountOptions, String> {
    let mut options = xfs::MountOptions { read_only: false, ..xfs::MountOptions::default() };
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        one.parse::<xfs::mount::options::MountOption>()?.apply(&mut options);
    }
    Ok(options)
}

/// A mounted file system, and the journal's side of it where that is ext's.
pub struct Mounted {
    /// What workloads see.
    pub fs: Arc<dyn FileSystem>,
    ext: Option<Arc<Ext4>>,
}

impl Mounted {
    /// Mounts what an experiment describes, with `text` behind its own options, on a machine with
    /// pages of `page_size` bytes. May park.
    ///
    /// # Errors
    /// An option that is not known; what mount said.
    pub fn mount(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        filesystem: &Filesystem,
        (text, page_size): (&str, Option<u32>),
    ) -> Result<Mounted, String> {
        let text = format!("{},{text}", filesystem.mount.text());
        if filesystem.is_xfs() {
            let mut options = parse_xfs(&text)?;
            options.direct.page_size = page_size.unwrap_or(options.direct.page_size);
            let fs = Xfs::mount(cx, queue, pages, options).map_err(|error| error.to_string())?;
            return Ok(Mounted { fs, ext: None });
        }
        let mut options = parse(&text)?;
        options.direct.page_size = page_size.unwrap_or(options.direct.page_size);
        let fs = Ext4::mount(cx, queue, pages, options).map_err(|error| error.to_string())?;
        Ok(Mounted { fs: fs.clone(), ext: Some(fs) })
    }

    /// Commits of the journal so far; of XFS none are counted.
    pub fn commits(&self) -> u64 {
        self.ext.as_ref().and_then(|fs| fs.journal_stats()).map_or(0, |stats| stats.commits)
    }

    /// The I/O context of the journal's task.
    pub fn journal_ioc(&self) -> Option<u64> {
        self.ext.as_ref().and_then(|fs| fs.journal_task_ioc())
    }
}
