//! The options of `mkfs` that ext2, ext3 and ext4 alone have.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use ext4::mkfs::{Creator, MkfsOptions, OnError, Usage};

/// Options of one letter as mke2fs has them.
#[derive(Args, Clone, PartialEq, Debug, Default)]
pub struct Letters {
    /// ext: blocks of a group; clusters with bigalloc
    #[arg(short = 'g', value_name = "COUNT")]
    blocks_per_group: Option<u32>,
    /// ext: groups whose tables lie together: a power of two (16 without)
    #[arg(short = 'G', value_name = "COUNT")]
    groups_per_flex: Option<u32>,
    /// ext: what the kernel does on an error
    #[arg(short = 'e', value_name = "BEHAVIOR", value_enum)]
    errors: Option<ErrorsArg>,
    /// ext: where it counts as mounted last
    #[arg(short = 'M', value_name = "PATH")]
    last_mounted: Option<String>,
    /// ext: what it is used for, as in mke2fs.conf: default, small, floppy, big, huge, news,
    /// largefile, largefile4 or hurd; a list with commas
    #[arg(short = 'T', value_name = "TYPES", value_parser = Usage::of_types)]
    usage: Option<Usage>,
    /// ext: the system that it is made for (-o of mke2fs; -o names mount options here)
    #[arg(long, value_name = "OS", value_enum)]
    creator_os: Option<CreatorArg>,
    /// ext: with a journal, also of ext2
    #[arg(short = 'j')]
    with_journal: bool,
    /// ext: only superblocks and descriptors, for a file system that has lost them
    #[arg(short = 'S')]
    super_only: bool,
    /// ext: the same as --direct
    #[arg(short = 'D')]
    pub direct_io: bool,
    /// What mke2fs -v prints is always in the output of --json.
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    /// Refused, with the reason.
    #[arg(short = 'z', value_name = "FILE", hide = true)]
    undo_file: Option<PathBuf>,
}

/// Words of `-e`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ErrorsArg {
    Continue,
    RemountRo,
    Panic,
}

/// Words of `--creator-os`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum CreatorArg {
    Linux,
    #[value(alias = "gnu")]
    Hurd,
    Masix,
    Freebsd,
    Lites,
}

impl Letters {
    /// Takes over what is given.
    ///
    /// # Errors
    /// An undo file.
    pub fn apply(&self, made: &mut MkfsOptions) -> Result<()> {
        if self.undo_file.is_some() {
            bail!("-z: mkfs keeps no undo file; copy what it overwrites first");
        }
        made.blocks_per_group = self.blocks_per_group;
        made.groups_per_flex = self.groups_per_flex;
        made.errors = match self.errors {
            None | Some(ErrorsArg::Continue) => OnError::Continue,
            Some(ErrorsArg::RemountRo) => OnError::RemountRo,
            Some(ErrorsArg::Panic) => OnError::Panic,
        };
        made.creator = match self.creator_os {
            None | Some(CreatorArg::Linux) => Creator::Linux,
            Some(CreatorArg::Hurd) => Creator::Hurd,
            Some(CreatorArg::Masix) => Creator::Masix,
            Some(CreatorArg::Freebsd) => Creator::FreeBsd,
            Some(CreatorArg::Lites) => Creator::Lites,
        };
        made.last_mounted = self.last_mounted.clone().unwrap_or_default();
        made.usage = self.usage;
        made.super_only = self.super_only;
        if self.with_journal {
            made.features = format!("has_journal,{}", made.features);
        }
        Ok(())
    }

    /// Whether only superblocks are made.
    pub fn is_super_only(&self) -> bool {
        self.super_only
    }

    /// # Errors
    /// One of them is given.
    pub fn refuse_for_xfs(&self) -> Result<()> {
        if *self != Letters::default() {
            bail!("-D, -e, -g, -G, -j, -M, -S, -T and --creator-os are options for ext only");
        }
        Ok(())
    }
}
