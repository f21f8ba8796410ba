//! Goal: what we write is what an independent implementation of the protocol reads, and what it
//! writes is what we read. Method: the types of the crate `nfs3_types`, both ways.

use super::*;
use crate::xdr::{Reader, Writer};
use nfs3_types::nfs3 as theirs;
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use proptest::prelude::*;
use vfs::FileType;

fn handle() -> Handle {
    Handle::new(b"a handle of 17 by").unwrap()
}

fn fattr() -> Fattr {
    let time = |sec| NfsTime { sec, nsec: 7 };
    Fattr {
        kind: FileType::Regular,
        mode: 0o644,
        nlink: 2,
        uid: 5,
        gid: 6,
        size: 1 << 33,
        used: 4096,
        rdev: 0,
        fsid: 99,
        fileid: 12,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
    }
}

fn wcc() -> Wcc {
    Wcc { before: Some(fattr().stamp()), after: Some(fattr()) }
}

fn args_bytes(call: &Call<'_>) -> Vec<u8> {
    let mut w = Writer::default();
    call.write(&mut w);
    w.out
}

#[test]
fn calls_are_read_by_others() {
    let call = Call::Write { handle: handle(), offset: 77, stable: Stable::DataSync, data: b"abc" };
    let bytes = args_bytes(&call);
    let (args, len) = theirs::WRITE3args::unpack(&mut &bytes[..]).unwrap();
    assert_eq!((len, args.offset, args.count), (bytes.len(), 77, 3));
    assert_eq!((args.stable, &*args.data), (theirs::stable_how::DATA_SYNC, &b"abc"[..]));
    assert_eq!(&*args.file.data, handle().bytes());

    let set = Sattr { mode: Some(0o640), mtime: SetTime::Now, ..Sattr::default() };
    let call = Call::Setattr { handle: handle(), set, guard: Some(NfsTime { sec: 4, nsec: 5 }) };
    let (args, _) = theirs::SETATTR3args::unpack(&mut &args_bytes(&call)[..]).unwrap();
    assert_eq!(args.new_attributes.mode, theirs::set_mode3::Some(0o640));
    assert!(matches!(args.new_attributes.mtime, theirs::set_mtime::SET_TO_SERVER_TIME));
    assert!(args.guard.is_some());
}

#[test]
fn results_of_others_are_read() {
    let fattr3 = || theirs::fattr3 {
        type_: theirs::ftype3::NF3REG,
        mode: 0o644,
        nlink: 2,
        uid: 5,
        gid: 6,
        size: 1 << 33,
        used: 4096,
        rdev: theirs::specdata3::default(),
        fsid: 99,
        fileid: 12,
        atime: theirs::nfstime3 { seconds: 1, nseconds: 7 },
        mtime: theirs::nfstime3 { seconds: 2, nseconds: 7 },
        ctime: theirs::nfstime3 { seconds: 3, nseconds: 7 },
    };
    let entry = theirs::entryplus3 {
        fileid: 12,
        name: b"name"[..].into(),
        cookie: 8,
        name_attributes: theirs::post_op_attr::Some(fattr3()),
        name_handle: theirs::post_op_fh3::Some(theirs::nfs_fh3 {
            data: Opaque::owned(handle().bytes().to_vec()),
        }),
    };
    let size = entry.packed_size() + 4;
    let result = theirs::READDIRPLUS3res::Ok(theirs::READDIRPLUS3resok {
        dir_attributes: theirs::post_op_attr::Some(fattr3()),
        cookieverf: theirs::cookieverf3([3; 8]),
        reply: theirs::dirlistplus3 {
            entries: nfs3_types::xdr_codec::List(vec![entry]),
            eof: true,
        },
    });
    let mut bytes = Vec::new();
    result.pack(&mut bytes).unwrap();
    let reply = Reply::read(Proc::Readdirplus, &mut Reader::new(&bytes)).unwrap();
    let (attr, handle) = (Some(fattr()), Some(handle()));
    let entry = Entry { fileid: 12, name: b"name", cookie: 8, attr, handle };
    assert_eq!(entry.size(true), size);
    let body = Body::Entries { verf: [3; 8], entries: vec![entry], eof: true };
    assert_eq!(reply, Reply { attr: Some(fattr()), body, ..Reply::of(Status::OK) });
    let mut w = Writer::default();
    reply.write(Proc::Readdirplus, &mut w);
    assert_eq!(w.out, bytes);
}

#[test]
fn failures_have_the_shape_of_their_procedure() {
    for procedure in Proc::ALL.into_iter().skip(1) {
        let mut w = Writer::default();
        let reply = Reply { wcc: wcc(), ..Reply::of(Status(28)) };
        reply.write(procedure, &mut w);
        let mut r = Reader::new(&w.out);
        let back = Reply::read(procedure, &mut r).unwrap();
        assert!(r.rest().is_empty(), "{procedure:?}");
        assert_eq!(back.status.check(), Err(base::Errno::ENOSPC));
    }
    let mut w = Writer::default();
    Reply { wcc: wcc(), ..Reply::of(Status(5)) }.write(Proc::Commit, &mut w);
    let (theirs, _) = theirs::COMMIT3res::unpack(&mut &w.out[..]).unwrap();
    assert!(matches!(theirs, theirs::COMMIT3res::Err((theirs::nfsstat3::NFS3ERR_IO, _))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// No bytes make the readers panic, and what was read is written again as it was.
    #[test]
    fn any_bytes_are_refused_or_come_back(
        procedure in 0u32..22,
        words in proptest::collection::vec(prop_oneof![0u32..9, any::<u32>()], 0..64),
    ) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let procedure = Proc::of(procedure).unwrap();
        if let Ok(call) = Call::read(procedure, &mut Reader::new(&bytes)) {
            let again = args_bytes(&call);
            let read = Call::read(procedure, &mut Reader::new(&again)).unwrap();
            prop_assert_eq!(args_bytes(&read), again);
        }
        if let Ok(reply) = Reply::read(procedure, &mut Reader::new(&bytes)) {
            let mut w = Writer::default();
            reply.write(procedure, &mut w);
            let again = Reply::read(procedure, &mut Reader::new(&w.out)).unwrap();
            prop_assert_eq!(again, reply);
        }
        let _ = crate::rpc::read_call(&bytes);
        let _ = crate::rpc::read_reply(&bytes);
    }
}
