//! Objects of S3, Google Cloud Storage and Azure, by the crate `object_store`.

use std::ops::Range;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, RetryConfig};

use crate::Error;
use crate::address::Address;
use crate::http::chain;
use crate::version::{CONNECT, Failure, Part, SILENCE, Version};

/// An object of a store.
pub(crate) struct StoreObject {
    /// As it may be shown.
    pub address: String,
    pub path: Path,
    pub store: Box<dyn ObjectStore>,
}

impl StoreObject {
    /// With the credentials of the environment, or with none.
    pub fn new(
        address: &Address,
        anonymous: bool,
        retry: RetryConfig,
    ) -> Result<StoreObject, Error> {
        let shown = address.shown();
        let setup = |error: object_store::Error| Error::Setup {
            address: shown.clone(),
            what: chain(&error),
        };
        let path = Path::from_url_path(address.key()).map_err(|error| setup(error.into()))?;
        let bucket = address.bucket();
        let client = ClientOptions::new()
            .with_connect_timeout(CONNECT)
            .with_read_timeout(SILENCE)
            .with_timeout_disabled()
            .with_allow_http(true);
        let store: Box<dyn ObjectStore> = match address.url.scheme() {
            "s3" => Box::new(
                AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_client_options(client)
                    .with_retry(retry)
                    .with_skip_signature(anonymous)
                    .build()
                    .map_err(setup)?,
            ),
            "gs" => Box::new(
                GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(bucket)
                    .with_client_options(client)
                    .with_retry(retry)
                    .with_skip_signature(anonymous)
                    .build()
                    .map_err(setup)?,
            ),
            _ => Box::new(
                MicrosoftAzureBuilder::from_env()
                    .with_container_name(bucket)
                    .with_client_options(client)
                    .with_retry(retry)
                    .with_skip_signature(anonymous)
                    .build()
                    .map_err(setup)?,
            ),
        };
        Ok(StoreObject { address: shown, path, store })
    }

    /// One try for a range.
    pub async fn get(&self, range: Range<u64>, known: Option<&Version>) -> Result<Part, Failure> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: known.and_then(Version::strong).map(str::to_owned),
            ..GetOptions::default()
        };
        let result = self.store.get_opts(&self.path, options).await;
        let result = result.map_err(|error| self.failure(&error))?;
        let meta = &result.meta;
        let version = Version {
            size: meta.size,
            etag: meta.e_tag.clone(),
            date: Some(meta.last_modified.to_string()),
        };
        let bytes = result.bytes().await.map_err(|error| self.failure(&error))?;
        Ok(Part { version, bytes: bytes.into() })
    }

    pub fn failure(&self, error: &object_store::Error) -> Failure {
        let address = self.address.clone();
        let refused = |status: &str, what| Error::Status {
            address: address.clone(),
            status: status.to_owned(),
            what,
        };
        use object_store::Error as Store;
        Failure::Final(match error {
            Store::NotFound { .. } => refused("404 Not Found", ": there is no such object"),
            Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => {
                refused("403 Forbidden", ": it wants credentials, or others (--anonymous: none)")
            }
            Store::Precondition { .. } => {
                let what = "its ETag is another one".to_owned();
                Error::Changed { address, what }
            }
            other => return Failure::Again(chain(other)),
        })
    }
}
