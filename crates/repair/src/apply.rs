//! Carries out a plan.

use std::sync::Arc;

use block::Queue;
use rt::Cx;

use crate::undo::{UndoError, UndoFile};

/// Writes the new content of an undo file to the image, or goes on where an earlier call was cut:
/// the superblock with a mark, everything else, the superblock without it, with a flush between.
/// Durable afterwards. Parks.
///
/// # Errors
/// The image is no longer what the plan was made of, or its device fails.
pub fn apply(cx: &mut Cx, queue: &Arc<Queue>, undo: &mut UndoFile) -> Result<(), UndoError> {
    undo.write_new(cx, queue)
}
