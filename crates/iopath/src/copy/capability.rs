//! Capabilities of files as text: the value of the attribute `security.capability`.
//!
//! Source: capabilities(7), and the structure `vfs_cap_data` of linux/capability.h.

use anyhow::{Context, Result, bail};

/// By number.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// Revision 2 of the structure, and the bit that says that they are effective at once.
const REVISION_2: u32 = 0x0200_0000;
const EFFECTIVE: u32 = 1;

/// Reads `cap_net_raw,net_admin`, with or without `+ep` or `=ep`, or a mask in hexadecimal: what is
/// permitted, and effective unless only `p` is said.
///
/// # Errors
/// No such capability.
pub fn parse(text: &str) -> Result<Vec<u8>> {
    let (list, flags) = text.split_once(['+', '=']).unwrap_or((text, "ep"));
    let effective = match flags {
        "ep" | "pe" => EFFECTIVE,
        "p" => 0,
        other => bail!("capabilities with the flags `{other}`: only p and ep are known"),
    };
    let mask = match list.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).with_context(|| text.to_owned())?,
        None => list.split(',').try_fold(0, |mask, name| {
            let name = name.to_ascii_lowercase();
            let name = name.strip_prefix("cap_").unwrap_or(&name);
            let bit = NAMES.iter().position(|known| *known == name);
            let bit = bit.with_context(|| format!("there is no capability `{name}`"))?;
            Ok::<u64, anyhow::Error>(mask | 1 << bit)
        })?,
    };
    let words = [REVISION_2 | effective, mask as u32, 0, (mask >> 32) as u32, 0];
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// Bytes of digits in pairs.
///
/// # Errors
/// These are no such digits.
pub fn bytes_of_hex(digits: &[u8]) -> Result<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(pair).collect();
    bytes.context("0x and an even number of hexadecimal digits are expected")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_words_or_a_mask() {
        let raw = parse("cap_net_raw+ep").expect("known");
        assert_eq!(raw, parse("0x2000").expect("a mask"));
        assert_eq!(raw, [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse("bpf=p").expect("known")[12], 1 << 7);
        assert!(parse("fly").is_err() && parse("net_raw+i").is_err());
        assert_eq!(bytes_of_hex(b"0aFf").expect("digits"), [10, 255]);
        assert!(bytes_of_hex(b"0").is_err() && bytes_of_hex(b"zz").is_err());
    }
}
