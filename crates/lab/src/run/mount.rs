//! Mount options as an experiment writes them.

use ext4::MountOptions;
use ext4::mount_options::MountOption;

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
