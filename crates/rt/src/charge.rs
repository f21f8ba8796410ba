//! What the processor costs, by name: the table that a modelled machine brings along.
//!
//! Code that computes takes no virtual time. At named points of the path it says what it has just
//! done ([`Cx::charge_for`](crate::Cx::charge_for)), and the world's table ([`Charges`]) says what
//! that costs on the machine of this world. All costs are zero unless a machine gives them, and
//! then nothing at all happens at these points.

use base::Nanos;

/// A named piece of work of the processor. `docs/machines.md` shows where each one is charged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Charge {
    /// Entering and leaving one system call.
    Syscall,
    /// Looking one component of a path up.
    PathComponent,
    /// Creating or removing one name with its inode.
    Create,
    /// Finding one page in the page cache.
    PageLookup,
    /// Allocating one page and putting it into the page cache.
    PageAdd,
    /// Copying 4 KiB between a caller and the page cache.
    CopyPage,
    /// Asking the file system where one run of blocks lies.
    MapBlocks,
    /// Finding one run of new blocks for a direct write, with what the allocation waits for.
    AllocateRun,
    /// Starting and stopping one journal handle.
    JournalHandle,
    /// Preparing one block for the journal.
    JournalBlock,
    /// Building one bio and sending it down to the device.
    BioSubmit,
    /// One segment of a bio: mapping it for the device.
    BioSegment,
    /// Ending one bio, charged to the task that waited for it.
    BioComplete,
    /// One interrupt of a device, charged to the task that it wakes.
    Interrupt,
    /// Being woken and put onto a processor after a wait.
    ContextSwitch,
}

impl Charge {
    /// Every one, in the order of the table.
    pub const ALL: [Charge; 15] = [
        Charge::Syscall,
        Charge::PathComponent,
        Charge::Create,
        Charge::PageLookup,
        Charge::PageAdd,
        Charge::CopyPage,
        Charge::MapBlocks,
        Charge::AllocateRun,
        Charge::JournalHandle,
        Charge::JournalBlock,
        Charge::BioSubmit,
        Charge::BioSegment,
        Charge::BioComplete,
        Charge::Interrupt,
        Charge::ContextSwitch,
    ];

    /// Its name in profiles and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Charge::Syscall => "syscall",
            Charge::PathComponent => "path_component",
            Charge::Create => "create",
            Charge::PageLookup => "page_lookup",
            Charge::PageAdd => "page_add",
            Charge::CopyPage => "copy_page",
            Charge::MapBlocks => "map_blocks",
            Charge::AllocateRun => "allocate_run",
            Charge::JournalHandle => "journal_handle",
            Charge::JournalBlock => "journal_block",
            Charge::BioSubmit => "bio_submit",
            Charge::BioSegment => "bio_segment",
            Charge::BioComplete => "bio_complete",
            Charge::Interrupt => "interrupt",
            Charge::ContextSwitch => "context_switch",
        }
    }
}

/// The cost of each [`Charge`] in nanoseconds of processor time. The default is zero everywhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Charges {
    ns: [u64; Charge::ALL.len()],
}

impl Charges {
    /// What one `charge` costs.
    #[inline]
    pub fn get(&self, charge: Charge) -> Nanos {
        Nanos(self.ns[charge as usize])
    }

    /// Changes the cost of one `charge`.
    pub fn set(&mut self, charge: Charge, cost: Nanos) {
        self.ns[charge as usize] = cost.0;
    }

    /// The table with another cost of one `charge`.
    pub fn with(mut self, charge: Charge, cost: Nanos) -> Charges {
        self.set(charge, cost);
        self
    }

    /// True where nothing costs anything.
    pub fn is_free(&self) -> bool {
        self.ns.iter().all(|&ns| ns == 0)
    }
}
