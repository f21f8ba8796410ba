//! Files with verity: enabling it, and what is known of one.

use base::{Errno, Ino};
use rt::Cx;
use vfs::FileType;

use crate::Ext4;
use crate::file::verity::tree;
use crate::format::features::RoCompat;
use crate::format::verity::{self, Descriptor, HashAlg, VerityParams};

impl Ext4 {
    /// What is known of a file with verity; `None` without. May park.
    ///
    /// # Errors
    /// `ESTALE`; `ENOKEY`; `EUCLEAN` the descriptor is damaged or not supported; `EIO`.
    pub fn verity(&self, cx: &mut Cx, ino: Ino) -> Result<Option<Descriptor>, Errno> {
        let inode = self.iget(cx, ino)?;
        inode.check_key()?;
        let Some(known) = inode.verity() else { return Ok(None) };
        tree(cx, &self.inodes, &inode, known).map(|verity| Some(verity.descriptor.clone()))
    }

    /// Can files get verity here? Never waits.
    pub fn has_verity(&self) -> bool {
        self.sb.geometry.features.ro_compat.contains(RoCompat::VERITY)
    }

    /// Gives a file verity by the usual parameters: SHA-256, no salt, and blocks of 4 KiB or those
    /// of the file system, if they are smaller.
    ///
    /// # Errors
    /// As [`Ext4::enable_verity`].
    pub fn make_verity(&self, cx: &mut Cx, ino: Ino) -> Result<Descriptor, Errno> {
        let block_size = self.sb.geometry.block_size.min(4096);
        let params = VerityParams { alg: HashAlg::Sha256, block_size, salt: Vec::new() };
        self.enable_verity(cx, ino, &params, b"")
    }

    /// Gives a file verity: from now on its content cannot change, and every read is compared with
    /// the hashes. `signature` is kept beside them, and not checked. May park; holds the tree in
    /// memory.
    ///
    /// # Errors
    /// `EOPNOTSUPP` the file system has not the feature `verity`, or the file no extents; `EINVAL`
    /// no regular file, or parameters that are not possible; `EEXIST` it has verity; `EFBIG` the
    /// tree would lie too far behind; `ENOKEY`, `ENOSPC`, `EDQUOT`, `EROFS`, `EUCLEAN`, `EIO`.
    pub fn enable_verity(
        &self,
        cx: &mut Cx,
        ino: Ino,
        params: &VerityParams,
        signature: &[u8],
    ) -> Result<Descriptor, Errno> {
        self.sb.check_writable()?;
        let geometry = &*self.sb.geometry;
        if !self.has_verity() {
            return Err(Errno::EOPNOTSUPP);
        }
        let fits = params.check(geometry.block_size).is_ok();
        let inode = self.iget(cx, ino)?;
        let long = signature.len() > verity::SIGNATURE_MAX;
        if !fits || long || inode.kind(cx) != FileType::Regular {
            return Err(Errno::EINVAL);
        }
        inode.check_key()?;
        let _guard = inode.rwsem.write(cx);
        if inode.verity().is_some() {
            return Err(Errno::EEXIST);
        }
        self.inodes.leave_inline(cx, &inode)?;
        if !inode.has_extents(cx) {
            return Err(Errno::EOPNOTSUPP);
        }
        let size = inode.size(cx);
        let mapping = inode.mapping();
        mapping.flush(cx, 0..size)?;
        // What was allocated behind the end would be taken for the tree.
        self.inodes.truncate_blocks(cx, &inode, size)?;
        let mut at = 0;
        let built = verity::build(params, size, |part| {
            let count = mapping.read(cx, at, part)?;
            at += count as u64;
            if count == part.len() { Ok(()) } else { Err(Errno::EIO) }
        })?;
        let descriptor = Descriptor {
            params: params.clone(),
            data_size: size,
            root_hash: built.root_hash,
            signature: signature.to_vec(),
        };
        let done = self.inodes.write_verity(cx, &inode, built.bytes, &descriptor);
        if let Err(errno) = done {
            self.inodes.truncate_blocks(cx, &inode, size)?;
            return Err(errno);
        }
        inode.set_verity();
        mapping.set_encoded();
        mapping.invalidate(cx, 0..size)?;
        Ok(descriptor)
    }
}
