//! Mounting what an experiment describes.

use std::sync::Arc;

use block::Queue;
use cache::PageCache;
use ext4::Ext4;
use rt::Cx;
use vfs::FileSystem;
use xfs::Xfs;

use crate::experiment::Filesystem;
use crate::experiment::options::{parse, parse_xfs};

/// What comes after a file system's own options.
#[derive(Default)]
pub struct More<'a> {
    /// Mount options, as mount(8) takes them.
    pub text: &'a str,
    /// Bytes of the machine's pages.
    pub page_size: Option<u32>,
}

/// A mounted file system, and the journal's side of it where that is ext's.
pub struct Mounted {
    /// What workloads see.
    pub fs: Arc<dyn FileSystem>,
    ext: Option<Arc<Ext4>>,
}

impl Mounted {
    /// Mounts what an experiment describes. May park.
    ///
    /// # Errors
    /// An option that is not known; what mount said.
    pub fn mount(
        cx: &mut Cx,
        queue: &Arc<Queue>,
        pages: &Arc<PageCache>,
        filesystem: &Filesystem,
        More { text, page_size }: More<'_>,
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
