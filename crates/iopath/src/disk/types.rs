//! Types of partitions by name.
//!
//! Source: the UAPI group's "Discoverable Partitions Specification"; UEFI 2.10; `sfdisk -T`.

use anyhow::{Context, Result, bail};

/// Name, GUID, byte in an MBR (0: none).
const TYPES: &[(&str, &str, u8)] = &[
    ("esp", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", 0xef),
    ("xbootldr", "bc13c2ff-59e6-4262-a352-b275fd6f7172", 0xea),
    ("bios-boot", "21686148-6449-6e6f-744e-656564454649", 0),
    ("swap", "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", 0x82),
    ("home", "933ac7e1-2eb4-4f13-b844-0e14e2aef915", 0x83),
    ("srv", "3b8f8425-20e0-4f3b-907f-1a25a76f98e8", 0x83),
    ("var", "4d21b016-b534-45c2-a9fb-5c16e091fd2d", 0x83),
    ("tmp", "7ec6f557-3bc5-4aca-b293-16ef5df639d1", 0x83),
    ("linux-generic", "0fc63daf-8483-4772-8e79-3d69d8477de4", 0x83),
    ("root-x86", "44479540-f297-41b2-9af7-d131d5f0458a", 0x83),
    ("root-x86-64", "4f68bce3-e8cd-4db1-96e7-fbcaf984b709", 0x83),
    ("root-arm", "69dad710-2ce4-4e3c-b16c-21a1d49abed3", 0x83),
    ("root-arm64", "b921b045-1df0-41c3-af44-4c6f280d3fae", 0x83),
    ("root-riscv64", "72ec70a6-cf74-40e6-bd49-4bda08e8f224", 0x83),
    ("root-x86-64-verity", "2c7357ed-ebd2-46d9-aec1-23d437ec2bf5", 0),
    ("usr-x86-64", "8484680c-9521-48c6-9c11-b0720656f69e", 0x83),
    ("usr-arm64", "b0e01050-ee5f-4390-949a-9101b17104e9", 0x83),
    ("lvm", "e6d6d379-f507-44c2-a23c-238f2a3df928", 0x8e),
    ("raid", "a19d880f-05fc-4d3b-a006-743f0f84911e", 0xfd),
    ("basic-data", "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", 0x0c),
];

/// A type by its name; `root` and `usr` are those of this machine.
fn find(name: &str) -> Option<&'static (&'static str, &'static str, u8)> {
    let own = match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "aarch64" => "arm64",
        other => other,
    };
    let name = match name {
        "root" | "usr" => format!("{name}-{own}"),
        other => other.to_owned(),
    };
    TYPES.iter().find(|(known, ..)| *known == name)
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = TYPES.iter().map(|(name, ..)| *name).collect();
    format!("type `{name}`: not one of root, usr, {}", names.join(", "))
}

/// The GUID of a type: by name, or as it is.
///
/// # Errors
/// There is no such type.
pub fn guid(name: &str) -> Result<uuid::Uuid> {
    let text = find(name).map_or(name, |(_, guid, _)| guid);
    text.parse().ok().with_context(|| format!("{}, and no GUID", unknown(name)))
}

/// The byte of a type: by name, or as two hexadecimal digits.
///
/// # Errors
/// There is no such type.
pub fn byte(name: &str) -> Result<u8> {
    match find(name) {
        Some((.., 0)) => bail!("type `{name}` is one of GPT only"),
        Some((.., byte)) => Ok(*byte),
        None => {
            let digits = name.strip_prefix("0x").unwrap_or(name);
            let byte = u8::from_str_radix(digits, 16).ok().filter(|byte| *byte != 0);
            byte.with_context(|| format!("{}, and no two hexadecimal digits", unknown(name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_names_or_numbers() {
        assert_eq!(byte("swap").expect("known"), 0x82);
        assert_eq!(byte("0xda").expect("a number"), 0xda);
        assert!(byte("bios-boot").is_err() && byte("nonsense").is_err());
        let esp = guid("esp").expect("known");
        assert_eq!(guid("C12A7328-F81F-11D2-BA4B-00A0C93EC93B").expect("a GUID"), esp);
        for (_, text, _) in TYPES {
            assert!(text.parse::<uuid::Uuid>().is_ok(), "{text}");
        }
    }
}
