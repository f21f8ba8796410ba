//! Capabilities, privileges and limits.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities,
    clear_ambient_capability_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use crate::{LockError, Policy};

/// Gives up what the policy does not keep; returns how many capabilities are left.
pub(crate) fn limit(policy: &Policy) -> Result<u32, LockError> {
    let failed = |what| move |error: rustix::io::Errno| LockError::new(what, error);
    if let Some(bytes) = policy.memory_bytes {
        lower(Resource::Data, bytes).map_err(failed("limiting memory"))?;
    }
    // A core dump would hold what the image and its user have.
    lower(Resource::Core, 0).map_err(failed("limiting core dumps"))?;
    let now = capabilities(None).map_err(failed("reading capabilities"))?;
    let kept = match policy.capabilities {
        Some(kept) => now.effective & kept,
        None => now.effective,
    };
    // A service manager may have left nothing to give up, and no call to do it.
    if !(now.permitted | now.inheritable).difference(kept).is_empty() {
        if now.effective.contains(CapabilitySet::SETPCAP) {
            let bits = CapabilitiesSecureBits::NO_ROOT
                | CapabilitiesSecureBits::NO_ROOT_LOCKED
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
            set_capabilities_secure_bits(bits).map_err(failed("setting securebits"))?;
        }
        // Kernels before 4.3 have no ambient set.
        let _none = clear_ambient_capability_set();
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).map_err(failed("dropping capabilities"))?;
    }
    set_no_new_privs(true).map_err(failed("giving up new privileges"))?;
    Ok(kept.bits().count_ones())
}

fn lower(resource: Resource, bytes: u64) -> Result<(), rustix::io::Errno> {
    let now = getrlimit(resource);
    let lowest = |limit: Option<u64>| Some(limit.map_or(bytes, |limit| limit.min(bytes)));
    setrlimit(resource, Rlimit { current: lowest(now.current), maximum: lowest(now.maximum) })
}
