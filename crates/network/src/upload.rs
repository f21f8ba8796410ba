//! Objects are written whole: whoever reads one sees the old content or the new one.

use std::io::Read;

use object_store::{MultipartUpload, ObjectStoreExt, PutPayload, RetryConfig};
use tokio::runtime::Handle;

use crate::address::Address;
use crate::remote::{runtime, wait_for};
use crate::store::StoreObject;
use crate::version::Failure;
use crate::{Error, Options};

/// Bytes of one request: with the 10,000 parts that S3 takes, 156 GiB in all.
const PART: usize = 16 << 20;

/// Whether objects of an address can be written at all.
///
/// # Errors
/// No address, or an `http(s)://` one: those are read only.
pub fn is_written(address: &str) -> Result<(), Error> {
    let address = Address::parse(address)?;
    if matches!(address.url.scheme(), "http" | "https") {
        let what = "web servers are read, not written; s3://, gs:// and az:// are written";
        return Err(Error::Address { address: address.shown(), what: what.to_owned() });
    }
    Ok(())
}

/// Writes an object of `s3://`, `gs://` or `az://` with everything that `from` has, in parts of
/// 16 MiB. Waits in the calling thread.
///
/// # Errors
/// As [`is_written`]; the store refuses, or `from` cannot be read. Then the object is as it was.
pub fn put(address: &str, from: &mut dyn Read, options: &Options) -> Result<(), Error> {
    is_written(address)?;
    let address = Address::parse(address)?;
    let name = address.shown();
    let runtime = runtime(&address)?;
    let _inside = runtime.enter();
    let object = StoreObject::new(&address, options.anonymous, RetryConfig::default())?;
    let first = next(from, &name)?;
    if first.len() < PART {
        return wait_for(&runtime, async move {
            let put = object.store.put(&object.path, PutPayload::from(first)).await;
            put.map(drop).map_err(|error| failed(&object, &error))
        });
    }
    in_parts(&runtime, object, first, from)
}

/// Writes an object of several parts; what was sent is taken back where one fails.
fn in_parts(
    runtime: &Handle,
    object: StoreObject,
    first: Vec<u8>,
    from: &mut dyn Read,
) -> Result<(), Error> {
    let (object, mut upload) = wait_for(runtime, async move {
        let upload = object.store.put_multipart(&object.path).await;
        let upload = upload.map_err(|error| failed(&object, &error))?;
        Ok((object, upload))
    })?;
    let mut part = first;
    while !part.is_empty() {
        let sent: Result<_, Error> = wait_for(runtime, async move {
            let sent = upload.put_part(PutPayload::from(part)).await;
            Ok((upload, sent))
        });
        let (kept, sent) = sent?;
        upload = kept;
        let more = sent.map_err(|error| failed(&object, &error));
        part = match more.and_then(|()| next(from, &object.address)) {
            Ok(part) => part,
            Err(error) => {
                return wait_for(runtime, async move {
                    let _the_store_forgets_it_by_itself = upload.abort().await;
                    Err(error)
                });
            }
        };
    }
    wait_for(runtime, async move {
        upload.complete().await.map(drop).map_err(|error| failed(&object, &error))
    })
}

/// The next part; a short one is the last.
fn next(from: &mut dyn Read, name: &str) -> Result<Vec<u8>, Error> {
    let mut part = Vec::new();
    let read = from.take(PART as u64).read_to_end(&mut part);
    let failed = |error: std::io::Error| Error::Setup {
        address: name.to_owned(),
        what: format!("what is written to it cannot be read: {error}"),
    };
    read.map(|_| part).map_err(failed)
}

fn failed(object: &StoreObject, error: &object_store::Error) -> Error {
    match object.failure(error) {
        Failure::Final(error) => error,
        Failure::Again(what) => {
            let tries = RetryConfig::default().max_retries as u32;
            Error::Connection { address: object.address.clone(), what, tries }
        }
    }
}
