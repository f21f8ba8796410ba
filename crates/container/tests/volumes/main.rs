//! LUKS, LVM2, MD and dm-verity beside the tools that make them: cryptsetup, qemu-img, lvm2, mdadm,
//! veritysetup. None of them needs a device mapper here. lvm2 needs root, for loop devices.

mod campaign;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aes::cipher::KeyInit;
use base::rng::Rng;
use container::volume::{self, Found, luks, lvm, md, verity};
use container::{Error, FileSource, FileTarget, Image, Source, Target};
use testkit::judge::run_ok;
use testkit::lvm::{Loop, lvm2};
use zeroize::Zeroizing;

const SECRET: &[u8] = b"secret\nwith a newline\n";

fn secret() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(SECRET.to_vec())
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed, 0).fill(&mut bytes);
    bytes
}

/// A sparse file of a size.
fn sparse(dir: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = dir.join(name);
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// A volume of cryptsetup with further options; the path of its key file comes with it.
fn luks_format(dir: &Path, name: &str, options: &str) -> (PathBuf, PathBuf) {
    let (path, key) = (sparse(dir, name, 20 << 20), dir.join("key"));
    fs::write(&key, SECRET).unwrap();
    let words: Vec<&str> = options.split(' ').collect();
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"luksFormat", &"--batch-mode"];
    args.extend(words.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>));
    args.extend([&"--key-file" as &dyn AsRef<std::ffi::OsStr>, &key, &path]);
    run_ok("cryptsetup", &args);
    (path, key)
}

fn header(source: &dyn Source) -> Result<luks::Header, Error> {
    match volume::recognise(source)? {
        Some(Found::Luks(header)) => Ok(*header),
        other => panic!("{other:?}"),
    }
}

fn unlock(path: &Path) -> Result<Arc<dyn Image>, Error> {
    let lower = Arc::new(FileTarget::open(path)?);
    let header = header(&*lower)?;
    luks::unlock(lower, &header, &secret())
}

/// Writes at places of every alignment, and says what the volume holds then.
fn scribble(image: &dyn Image) -> Vec<u8> {
    let mut content = vec![0; image.size() as usize];
    image.read_at(0, &mut content).unwrap();
    for (at, len) in [(0, 4096), (5000, 100), (1 << 20, 300_000), (content.len() - 4096, 4096)] {
        let bytes = noise(len, at as u64);
        image.write_at(at as u64, &bytes).unwrap();
        content[at..at + len].copy_from_slice(&bytes);
    }
    image.flush().unwrap();
    content
}

#[test]
fn luks1_is_read_and_written_as_qemu_does_it() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("xts", "--type luks1 --pbkdf-force-iterations 1000"),
        ("cbc", "--type luks1 --pbkdf-force-iterations 1000 -c aes-cbc-essiv:sha256 -s 256"),
        ("old", "--type luks1 --pbkdf-force-iterations 1000 -c aes-cbc-plain -s 128 -h sha1"),
        ("sha512", "--type luks1 --pbkdf-force-iterations 1000 -s 256 -h sha512"),
    ] {
        let (path, key) = luks_format(dir.path(), name, options);
        let content = scribble(&*unlock(&path).unwrap());
        let plain = dir.path().join("plain");
        let secret = format!("secret,id=s,file={}", key.display());
        let source = format!("driver=luks,key-secret=s,file.filename={}", path.display());
        let (object, options) = ("--object", "--image-opts");
        run_ok(
            "qemu-img",
            &[&"convert", &object, &secret, &options, &source, &"-O", &"raw", &plain],
        );
        assert!(fs::read(&plain).unwrap() == content, "{name}");
        // And what QEMU writes, we read.
        let write = "write -P 0x5a 65536 200000";
        run_ok("qemu-io", &[&object, &secret, &options, &source, &"-c", &write]);
        let mut read = vec![0; 200_000];
        unlock(&path).unwrap().read_at(65536, &mut read).unwrap();
        assert!(read.iter().all(|&b| b == 0x5a), "{name}");
    }
}

/// The master key by cryptsetup, the cipher by another library.
#[test]
fn luks2_holds_what_its_master_key_says() {
    let dir = tempfile::tempdir().unwrap();
    let argon = "--pbkdf-memory 64 --pbkdf-parallel 1 --pbkdf-force-iterations 4";
    for (name, unit, options) in [
        ("argon2id", 512, format!("--type luks2 --sector-size 512 {argon}")),
        ("argon2i", 4096, format!("--type luks2 --sector-size 4096 --pbkdf argon2i {argon}")),
        ("pbkdf2", 4096, "--type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000".to_owned()),
    ] {
        let (path, key) = luks_format(dir.path(), name, &options);
        let content = scribble(&*unlock(&path).unwrap());
        let master = dir.path().join(format!("{name}.master"));
        let dump = ["luksDump", "--batch-mode", "--dump-volume-key", "--volume-key-file"];
        run_ok(
            "cryptsetup",
            &[&dump[0], &dump[1], &dump[2], &dump[3], &master, &"--key-file", &key, &path],
        );
        let master = fs::read(&master).unwrap();
        let (data, tweak) = master.split_at(32);
        let aes = |key| aes::Aes256::new_from_slice(key).unwrap();
        let cipher = xts_mode::Xts128::new(aes(data), aes(tweak));
        let mut stored = fs::read(&path).unwrap().split_off(16 << 20);
        let mut opened = unlock(&path).unwrap();
        let block = opened.logical_block() as usize;
        assert!(name != "argon2i" || block == unit, "{name}: sectors of {block} bytes");
        for (number, sector) in stored.chunks_exact_mut(block).enumerate() {
            let tweak = (number * block / 512) as u128;
            cipher.decrypt_sector(sector, tweak.to_le_bytes().into());
        }
        assert!(stored == content, "{name}");
        // The second copy of the header is as good as the first.
        drop(opened);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0xff; 600], 8).unwrap();
        opened = unlock(&path).unwrap();
        let mut read = vec![0; content.len()];
        opened.read_at(0, &mut read).unwrap();
        assert!(read == content, "{name}");
    }
}

#[test]
fn a_wrong_key_and_what_is_not_supported_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = luks_format(dir.path(), "v", "--type luks1 --pbkdf-force-iterations 1000");
    let lower = Arc::new(FileTarget::open(&path).unwrap());
    let found = header(&*lower).unwrap();
    let wrong = luks::unlock(lower.clone(), &found, &Zeroizing::new(b"secret".to_vec()));
    let error = wrong.err().unwrap();
    assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    assert!(error.to_string().contains("1 key slots tried"), "{error}");
    let text = format!("{found:?} {error} {error:?}");
    assert!(!text.contains("secret"), "{text}");
    drop(lower);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"serpent", 8).unwrap();
    let error = unlock(&path).err().unwrap().to_string();
    assert!(error.contains("the cipher `serpent-xts-plain64`"), "{error}");
}

/// Bytes in memory, and zeros behind them.
struct Memory {
    bytes: Vec<u8>,
    size: usize,
}

impl Memory {
    fn new(bytes: Vec<u8>) -> Memory {
        Memory { size: bytes.len(), bytes }
    }
}

impl Source for Memory {
    fn name(&self) -> &str {
        "mutant"
    }

    fn size(&self) -> u64 {
        self.size as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let end = (offset as usize).checked_add(buf.len()).filter(|&end| end <= self.size);
        end.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        buf.fill(0);
        let there = self.bytes.get(offset as usize..).unwrap_or_default();
        let len = there.len().min(buf.len());
        buf[..len].copy_from_slice(&there[..len]);
        Ok(())
    }
}

impl Target for Memory {
    fn write_at(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Opens what is recognised, as far as it goes, and reads some of it.
fn exercise(bytes: Vec<u8>, size: usize) -> Result<(), Error> {
    let source = Arc::new(Memory { bytes, size });
    let image = match volume::recognise(&*source)? {
        None => return Ok(()),
        Some(found) => {
            found.facts();
            match found {
                Found::Luks(header) => luks::unlock(source, &header, &secret())?,
                Found::Lvm(physical) => {
                    let group = physical.group().unwrap_or_default().to_owned();
                    let name = physical.volumes().pop().unwrap_or_default();
                    lvm::open(vec![(*physical, source)], &group, &name)?
                }
                Found::Md(member) => md::assemble(vec![(*member, source)])?,
            }
        }
    };
    image.facts()?;
    let mut buf = [0; 4096];
    let len = image.size().min(4096) as usize;
    image.read_at(0, &mut buf[..len])?;
    image.read_at(image.size() - len as u64, &mut buf[..len])
}

/// Every field of a header at its extremes, on a device of `size` bytes: an error or a volume, no
/// panic.
fn mutate(
    bytes: &[u8],
    size: usize,
    fields: impl Iterator<Item = usize>,
    seal: impl Fn(&mut [u8]),
) {
    let (mut good, mut bad) = (0, 0);
    for at in fields {
        for value in [0u8, 1, 0x7f, 0x80, 0xff] {
            let mut mutant = bytes.to_vec();
            mutant[at] = value;
            seal(&mut mutant);
            match exercise(mutant, size) {
                Ok(()) => good += 1,
                Err(error) => {
                    assert!(error.to_string().contains("mutant"), "byte {at} = {value}: {error}");
                    bad += 1;
                }
            }
        }
    }
    assert!(good > 0 && bad > 0, "{good} good, {bad} refused");
}

#[test]
fn damaged_headers_of_luks_are_refused_without_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = luks_format(dir.path(), "v1", "--type luks1 --pbkdf-force-iterations 1000");
    let mut whole = fs::read(&path).unwrap();
    whole.truncate(300 << 10);
    // The rounds of a slot are bounded by time alone.
    let rounds = |at: &usize| ![164, 165, 212, 213].contains(at);
    mutate(&whole, 20 << 20, (6..256).step_by(3).filter(rounds), |_| ());
    let pbkdf = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let (path, _) = luks_format(dir.path(), "v2", &format!("--type luks2 {pbkdf}"));
    let mut whole = fs::read(&path).unwrap();
    whole.truncate(300 << 10);
    whole[0x4000..0x4006].fill(0);
    let json = whole[4096..0x4000].iter().position(|&b| b == 0).unwrap();
    let seal = |bytes: &mut [u8]| {
        use sha2::Digest;
        bytes[448..512].fill(0);
        let sum = sha2::Sha256::digest(&bytes[..0x4000]);
        bytes[448..480].copy_from_slice(&sum);
    };
    let ahead = |at: &usize| *at < 4096 || !whole[4096..*at].ends_with(b"\"iterations\":");
    let fields = (0..264).step_by(5).chain((4096..4096 + json).step_by(23)).filter(ahead);
    mutate(&whole, 20 << 20, fields, seal);
}

fn physical(path: &Path) -> (lvm::Physical, Arc<dyn Target>) {
    let lower = Arc::new(FileTarget::open(path).unwrap());
    match volume::recognise(&*lower).unwrap() {
        Some(Found::Lvm(physical)) => (*physical, lower),
        other => panic!("{other:?}"),
    }
}

#[test]
fn logical_volumes_lie_where_lvm2_puts_them() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| sparse(dir.path(), name, 40 << 20));
    let (a, b) = (Loop::new(&paths[0]), Loop::new(&paths[1]));
    let both = [&a, &b];
    lvm2(&both, &format!("pvcreate -qq {} {}", a.name(), b.name()));
    lvm2(&both, &format!("vgcreate -qq -s 1m vg-0 {} {}", a.name(), b.name()));
    let create = "lvcreate -an -Zn -Wn -y -qq";
    lvm2(&both, &format!("{create} -l 3 -n plain vg-0 {}", a.name()));
    lvm2(&both, &format!("{create} -i 2 -I 64k -l 8 -n striped vg-0"));
    lvm2(&both, &format!("lvextend -qq -l +2 vg-0/plain {}", b.name()));
    let places = lvm2(
        &both,
        "lvs --noheadings --units b --nosuffix -o lv_name,seg_type,seg_size_pe,seg_pe_ranges vg-0",
    );
    drop((a, b));
    let open =
        |name: &str| lvm::open(paths.iter().map(|path| physical(path)).collect(), "vg-0", name);
    let (plain, striped) = (open("plain").map(|i| i.size()), open("striped").map(|i| i.size()));
    assert_eq!((plain.unwrap(), striped.unwrap()), (5 << 20, 8 << 20), "{places}");
    for name in ["plain", "striped"] {
        let image = open(name).unwrap();
        image.write_at(0, &noise(image.size() as usize, 3)).unwrap();
        image.flush().unwrap();
    }
    // Extents begin at 1 MiB. Where they lie, `lvs` says.
    let whole = paths.each_ref().map(|path| fs::read(path).unwrap());
    let extent =
        |device: usize, number: usize| &whole[device][(number + 1) << 20..(number + 2) << 20];
    let wanted = noise(5 << 20, 3);
    let found = [extent(0, 0), extent(0, 1), extent(0, 2), extent(1, 4), extent(1, 5)].concat();
    assert!(found == wanted, "{places}");
    let wanted = noise(8 << 20, 3);
    for (number, chunk) in wanted.chunks(64 << 10).enumerate() {
        let first = if number % 2 == 0 { 4 << 20 } else { 1 << 20 };
        let at = first + number / 2 * (64 << 10);
        assert!(&whole[number % 2][at..at + chunk.len()] == chunk, "chunk {number}: {places}");
    }
    // One of two.
    let error = lvm::open(vec![physical(&paths[0])], "vg-0", "striped").err().unwrap().to_string();
    assert!(error.contains("pv1") && error.contains("is missing"), "{error}");
    let error = open("other").err().unwrap().to_string();
    assert!(error.contains("no volume `other`; it has: plain, striped"), "{error}");
    // Damage.
    let mut start = whole[0].clone();
    start.truncate(1 << 20);
    mutate(&start, 40 << 20, (512..640).chain(4096..4170), |_| ());
}

#[test]
fn a_mirror_is_read_while_a_member_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| sparse(dir.path(), name, 20 << 20));
    let (a, b) = (Loop::new(&paths[0]), Loop::new(&paths[1]));
    let both = [&a, &b];
    lvm2(&both, &format!("pvcreate -qq {} {}", a.name(), b.name()));
    lvm2(&both, &format!("vgcreate -qq -s 1m vg {} {}", a.name(), b.name()));
    // What `lvcreate --type raid1` writes, which asks the kernel before: through its own editor.
    let text = dir.path().join("vg.text");
    lvm2(&both, &format!("vgcfgbackup -qq -f {} vg", text.display()));
    let id = |number: u32| format!("id = \"{number:06}-1111-2222-3333-4444-5555-{number:06}\"\n");
    let inner = |number: u32, name: &str, pv: u32, extent: u32, len: u32| {
        format!(
            "{name} {{\n{}status = [\"READ\", \"WRITE\"]\nflags = []\nsegment_count = 1\n\
             segment1 {{\n\
             start_extent = 0\nextent_count = {len}\ntype = \"striped\"\nstripe_count = 1\n\
             stripes = [\"pv{pv}\", {extent}]\n}}\n}}\n",
            id(number)
        )
    };
    let volumes = format!(
        "logical_volumes {{\nmir {{\n{}status = [\"READ\", \"WRITE\", \"VISIBLE\"]\nflags = []\n\
         segment_count = 1\nsegment1 {{\nstart_extent = 0\nextent_count = 4\ntype = \"raid1\"\n\
         device_count = 2\nregion_size = 1024\nraids = [\"mir_rmeta_0\", \"mir_rimage_0\", \
         \"mir_rmeta_1\", \"mir_rimage_1\"]\n}}\n}}\n{}{}{}{}}}\n",
        id(1),
        inner(2, "mir_rmeta_0", 0, 0, 1),
        inner(3, "mir_rimage_0", 0, 1, 4),
        inner(4, "mir_rmeta_1", 1, 0, 1),
        inner(5, "mir_rimage_1", 1, 1, 4),
    );
    let old = fs::read_to_string(&text).unwrap();
    let end = old.rfind("}\n").unwrap();
    fs::write(&text, format!("{}{volumes}{}", &old[..end], &old[end..])).unwrap();
    lvm2(&both, &format!("vgcfgrestore -qq -f {} vg", text.display()));
    let shown = lvm2(&both, "lvs --noheadings -a -o lv_name,segtype vg");
    assert!(shown.contains("raid1"), "{shown}");
    drop((a, b));
    let content = noise(4 << 20, 9);
    for path in &paths {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&content, 2 << 20).unwrap();
    }
    for path in &paths {
        let image = lvm::open(vec![physical(path)], "vg", "mir").unwrap();
        let mut read = vec![0; 4 << 20];
        image.read_at(0, &mut read).unwrap();
        assert!(read == content, "{}", path.display());
        assert!(!image.is_writable());
    }
}

#[test]
fn verity_gives_out_what_the_root_hash_says_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    for (name, blocks, options) in [
        ("one block", 1, ""),
        ("one level", 128, "--salt=-"),
        ("two levels", 129, "--hash=sha512 --salt=0011"),
        ("three levels", 700, "--data-block-size=1024 --hash-block-size=1024"),
    ] {
        let unit = if options.contains("1024") { 1024 } else { 4096 };
        let content = noise(blocks * unit, blocks as u64);
        let (data, tree) = (dir.path().join("data"), dir.path().join("tree"));
        fs::write(&data, &content).unwrap();
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"format", &data, &tree];
        let words: Vec<&str> = options.split_whitespace().collect();
        args.extend(words.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>));
        let said = run_ok("veritysetup", &args);
        let root = said.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap();
        let root = data_encoding::HEXLOWER.decode(root.trim().as_bytes()).unwrap();
        let open = |data: Vec<u8>, hashes: Vec<u8>, root: &[u8]| {
            let hashes = Arc::new(Memory::new(hashes));
            let tree = verity::Tree::read(&*hashes, 0)?;
            verity::open(Arc::new(Memory::new(data)), hashes, tree, root)
        };
        let hashes = fs::read(&tree).unwrap();
        let image = open(content.clone(), hashes.clone(), &root).unwrap();
        let mut read = vec![0; content.len()];
        image.read_at(0, &mut read).unwrap();
        assert!(read == content, "{name}");
        // A bit of the data, of each level, and of the root hash.
        let mut damaged = content.clone();
        damaged[unit * (blocks / 2) + 3] ^= 1;
        let image = open(damaged, hashes.clone(), &root).unwrap();
        let error = image.read_at(0, &mut read).err().unwrap().to_string();
        assert!(error.contains(&format!("block {} is not", blocks / 2)), "{name}: {error}");
        if blocks > 2 {
            image.read_at(0, &mut read[..unit]).unwrap();
        }
        for at in (unit..hashes.len()).step_by(unit) {
            let mut damaged = hashes.clone();
            damaged[at + 1] ^= 0x40;
            let failed =
                open(content.clone(), damaged, &root).and_then(|image| image.read_at(0, &mut read));
            assert!(failed.is_err(), "{name}: byte {at} of the tree");
        }
        let mut wrong = root.clone();
        wrong[0] ^= 1;
        let failed = open(content.clone(), hashes.clone(), &wrong)
            .and_then(|image| image.read_at(0, &mut read));
        assert!(failed.is_err(), "{name}");
        for at in 0..100 {
            let mut damaged = hashes.clone();
            damaged[at] = 0xff;
            let _no_panic = open(content.clone(), damaged, &root);
        }
        fs::remove_file(&tree).unwrap();
    }
}

/// A superblock of version 1 for a member, as `mdadm --examine` reads it.
fn superblock(member: u16, level: u32, at: u64, data: u64, sectors: u64) -> Vec<u8> {
    let mut raw = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &0xa92b_4efcu32.to_le_bytes());
    put(4, &1u32.to_le_bytes());
    put(16, &[7; 16]);
    put(32, b"host:array");
    put(72, &level.to_le_bytes());
    put(80, &sectors.to_le_bytes());
    put(88, &128u32.to_le_bytes());
    put(92, &2u32.to_le_bytes());
    put(128, &(data / 512).to_le_bytes());
    put(136, &sectors.to_le_bytes());
    put(144, &(at / 512).to_le_bytes());
    put(160, &u32::from(member).to_le_bytes());
    put(168, &[member as u8 + 1; 16]);
    put(200, &17u64.to_le_bytes());
    put(208, &u64::MAX.to_le_bytes());
    put(220, &2u32.to_le_bytes());
    put(256, &[0, 0, 1, 0]);
    seal_md(&mut raw, 0);
    raw
}

fn seal_md(bytes: &mut [u8], at: usize) {
    seal_words(&mut bytes[at..at + 260], 216);
}

/// Puts the sum of a superblock's words where it lies in it.
fn seal_words(raw: &mut [u8], at: usize) {
    raw[at..at + 4].fill(0);
    let words = raw.chunks_exact(4);
    let sum: u64 = words.map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    raw[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Fills the data of a member of two in chunks of 64 KiB; a mirror has 8 of them.
fn fill_leg(data: &mut [u8], content: &[u8], number: usize, level: u32) {
    const CHUNK: usize = 64 << 10;
    for (chunk, bytes) in content.chunks(CHUNK).enumerate() {
        let place = match level {
            0 if chunk % 2 == number => chunk / 2,
            1 if chunk < 8 => chunk,
            _ => continue,
        };
        data[place * CHUNK..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn member(bytes: &[u8]) -> (md::Member, Arc<dyn Target>) {
    member_on(Arc::new(Memory::new(bytes.to_vec())))
}

fn member_on(lower: Arc<dyn Target>) -> (md::Member, Arc<dyn Target>) {
    match volume::recognise(&*lower).unwrap() {
        Some(Found::Md(member)) => (*member, lower),
        other => panic!("{other:?}"),
    }
}

#[test]
fn arrays_are_assembled_from_superblocks_that_mdadm_reads() {
    const LEN: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let content = noise(1 << 20, 5);
    let sectors = (512 << 10) / 512;
    for (version, at, data) in
        [("1.0", LEN - 8192, 0), ("1.1", 0, 128 << 10), ("1.2", 4096, 128 << 10)]
    {
        for level in [0u32, 1] {
            let legs = [0u16, 1].map(|number| {
                let mut disk = vec![0; LEN as usize];
                let raw = superblock(number, level, at, data, sectors);
                disk[at as usize..at as usize + raw.len()].copy_from_slice(&raw);
                fill_leg(&mut disk[data as usize..], &content, number.into(), level);
                disk
            });
            let path = dir.path().join("leg");
            fs::write(&path, &legs[1]).unwrap();
            let shown = run_ok("mdadm", &[&"--examine", &path]);
            for word in [
                format!("Version : {version}"),
                format!("Raid Level : raid{level}"),
                "correct".into(),
            ] {
                assert!(shown.contains(&word), "{version} {level}: {shown}");
            }
            let size = if level == 0 { 1 << 20 } else { 512 << 10 };
            let image = md::assemble(legs.iter().rev().map(|leg| member(leg)).collect()).unwrap();
            let mut read = vec![0; size];
            image.read_at(0, &mut read).unwrap();
            assert!(read == content[..size], "{version} raid{level}");
            let alone = md::assemble(vec![member(&legs[1])]);
            if level == 0 {
                let error = alone.err().unwrap().to_string();
                assert!(error.contains("members 0 of 2 of a raid0 are missing"), "{error}");
            } else {
                let facts = format!("{:?}", alone.unwrap().facts().unwrap());
                assert!(facts.contains("(\"missing\", Lines([\"0\"]))"), "{facts}");
            }
            mutate(&legs[0], LEN as usize, (at as usize..at as usize + 260).step_by(9), |bytes| {
                seal_md(bytes, at as usize);
            });
        }
    }
}

/// A superblock of version 0.90, as `mdadm --examine` reads it; it lies behind the data.
fn old_superblock(member: u32, level: u32, kib: u32) -> Vec<u8> {
    let mut words = [0u32; 1024];
    let fields = [
        (0, 0xa92b_4efc),
        (2, 90),
        (5, 0x0707_0707),
        (6, 1_700_000_000),
        (7, level),
        (8, kib),
        (9, 2),
        (10, 2),
        (11, 3),
        (32, 1_700_000_000),
        (33, 1),
        (34, 2),
        (35, 2),
        (39, 17),
        (65, 64 << 10),
        (992, member),
        (993, 7),
        (994, member),
        (995, member),
        (996, 6),
    ];
    fields.into_iter().for_each(|(at, word)| words[at] = word);
    for number in 0..2u32 {
        let record = [number, 7, number, number, 6];
        words[128 + 32 * number as usize..][..5].copy_from_slice(&record);
    }
    let mut raw: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    seal_words(&mut raw, 152);
    raw
}

/// Goal: arrays whose superblocks have the version 0.90 are read, and RAID 0 is written, too.
#[test]
fn arrays_of_version_0_90_are_assembled() {
    const CHUNK: usize = 64 << 10;
    const LEN: usize = 1 << 20;
    // In the last whole 64 KiB.
    const AT: usize = LEN - CHUNK;
    let dir = tempfile::tempdir().unwrap();
    let content = noise(2 * AT, 6);
    for level in [0u32, 1] {
        let legs = [0u32, 1].map(|number| {
            let mut disk = vec![0; LEN];
            disk[AT..AT + 4096].copy_from_slice(&old_superblock(number, level, 512));
            fill_leg(&mut disk, &content, number as usize, level);
            disk
        });
        let paths = ["leg0", "leg1"].map(|name| dir.path().join(name));
        (0..2).for_each(|number| fs::write(&paths[number], &legs[number]).unwrap());
        let shown = run_ok("mdadm", &[&"--examine", &paths[1]]);
        let level_words = format!("Raid Level : raid{level}");
        for word in ["Version : 0.90", &level_words, "- correct", "Events : 17", "State : clean"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        let open = |path: &PathBuf| member_on(Arc::new(FileTarget::open(path).unwrap()));
        let image = md::assemble(paths.iter().rev().map(open).collect()).unwrap();
        let size = if level == 0 { 2 * AT } else { 512 << 10 };
        assert_eq!(image.size(), size as u64);
        let mut read = vec![0; size];
        image.read_at(0, &mut read).unwrap();
        assert!(read == content[..size], "raid{level}");
        let odd = noise(3 * CHUNK + 1024, 7);
        match level {
            0 => {
                image.write_at(CHUNK as u64 - 512, &odd).unwrap();
                image.read_at(0, &mut read).unwrap();
                assert!(read[CHUNK - 512..][..odd.len()] == odd, "what was written is read");
            }
            _ => assert!(image.write_at(0, &odd).is_err(), "a mirror is read, not written"),
        }
    }
}

/// A plain disk is none of it.
#[test]
fn noise_and_zeros_are_no_volumes() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in
        [("empty", Vec::new()), ("zeros", vec![0; 1 << 20]), ("noise", noise(1 << 20, 1))]
    {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let source = FileSource::look(&path, None).unwrap();
        assert!(volume::recognise(&source).unwrap().is_none(), "{name}");
    }
}
