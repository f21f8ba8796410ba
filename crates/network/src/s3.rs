//! Requests to S3 that `object_store` has no calls for, signed by it.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredentialProvider};
use object_store::client::HttpRequest;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use crate::Error;
use crate::address::Address;
use crate::http::{chain, client};
use crate::remote::{runtime, wait_for};
use crate::version::SILENCE;

/// How often a request is sent.
const TRIES: u32 = 6;
/// Wait before the second try; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// A request may take [`SILENCE`] and a second for so many bytes.
const SLOWEST: u32 = 64 << 10;
const SECOND: Duration = Duration::from_secs(1);
/// Where an account says no other.
const REGION: &str = "us-east-1";

/// An object of S3, and how to send requests for it.
#[derive(Clone)]
pub(crate) struct Client {
    /// The address as it may be shown.
    pub shown: String,
    /// The object at its server.
    url: String,
    region: String,
    /// None: the requests are not signed.
    credentials: Option<AwsCredentialProvider>,
    client: reqwest::Client,
    runtime: Handle,
}

/// What the store answers, where it does not refuse.
pub(crate) struct Answer {
    pub headers: HeaderMap,
    pub body: String,
}

impl Client {
    /// With the settings of the environment.
    pub fn new(address: &Address, anonymous: bool) -> Result<Client, Error> {
        let (shown, bucket, key) = (address.shown(), address.bucket(), address.key());
        let setup = |what: String| Error::Setup { address: shown.clone(), what };
        let runtime = runtime(address)?;
        let _inside = runtime.enter();
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let value = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
        let region = value(AmazonS3ConfigKey::Region).unwrap_or_else(|| REGION.to_owned());
        let has_bucket = value(AmazonS3ConfigKey::VirtualHostedStyleRequest);
        let url = match (value(AmazonS3ConfigKey::Endpoint), has_bucket.as_deref()) {
            (Some(endpoint), Some("true")) => format!("{}/{key}", endpoint.trim_end_matches('/')),
            (Some(endpoint), _) => format!("{}/{bucket}/{key}", endpoint.trim_end_matches('/')),
            (None, _) => format!("https://s3.{region}.amazonaws.com/{bucket}/{key}"),
        };
        let store = builder.build().map_err(|error| setup(chain(&error)))?;
        let credentials = (!anonymous).then(|| Arc::clone(store.credentials()));
        let client = client(&shown)?;
        Ok(Client { shown, url, region, credentials, client, runtime })
    }

    /// Sends a request until the store answers. Waits in the calling thread.
    ///
    /// # Errors
    /// It refuses, or there is no way to it.
    pub fn send(
        &self,
        method: Method,
        query: &str,
        headers: &[(HeaderName, String)],
        body: Vec<u8>,
    ) -> Result<Answer, Error> {
        let mut last = String::new();
        let digest = Sha256::digest(&body);
        for number in 0..TRIES {
            let request = self.request(&method, query, headers)?;
            let (client, body) = (self.clone(), body.clone());
            let sent = wait_for(&self.runtime, async move {
                if let Some(before) = number.checked_sub(1) {
                    tokio::time::sleep(FIRST_WAIT * (1 << before)).await;
                }
                client.once(request, digest.into(), body).await
            });
            match sent? {
                Ok((status, answer)) if status.is_success() => return Ok(answer),
                Ok((status, answer)) => last = self.refused(status, &answer)?,
                Err(what) => last = what,
            }
        }
        Err(Error::Connection { address: self.shown.clone(), what: last, tries: TRIES })
    }

    /// Signs a request and sends it once: its status and answer, or why there is none.
    async fn once(
        self,
        mut request: HttpRequest,
        digest: [u8; 32],
        body: Vec<u8>,
    ) -> Result<Result<(StatusCode, Answer), String>, Error> {
        let setup = |error: object_store::Error| {
            let (address, what) = (self.shown.clone(), chain(&error));
            Error::Setup { address, what }
        };
        if let Some(credentials) = &self.credentials {
            let credential = credentials.get_credential().await.map_err(setup)?;
            let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
            authorizer.try_authorize(&mut request, Some(&digest)).map_err(setup)?;
        }
        let (head, _) = request.into_parts();
        let (limit, url) = (SILENCE + body.len() as u32 / SLOWEST * SECOND, head.uri.to_string());
        let request = self.client.request(head.method, url).headers(head.headers);
        let answer = async {
            let answer = request.timeout(limit).body(body).send().await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            Ok((status, Answer { headers, body: answer.text().await? }))
        };
        let answer: Result<_, reqwest::Error> = answer.await;
        Ok(answer.map_err(|error| chain(&error.without_url())))
    }

    fn request(
        &self,
        method: &Method,
        query: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<HttpRequest, Error> {
        let setup = |what: String| Error::Setup { address: self.shown.clone(), what };
        let mut request = HttpRequest::new(Vec::new().into());
        *request.method_mut() = method.clone();
        let url = if query.is_empty() { self.url.clone() } else { format!("{}?{query}", self.url) };
        *request.uri_mut() = url.parse().map_err(|_| setup(format!("`{url}` is no address")))?;
        for (name, value) in headers {
            let value = HeaderValue::from_str(value);
            let value = value.map_err(|_| setup(format!("`{name}` has a value of odd bytes")))?;
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    /// Why a request failed for good; what to say where another try may help.
    fn refused(&self, status: StatusCode, answer: &Answer) -> Result<String, Error> {
        let code = between(&answer.body, "Code").unwrap_or_default();
        let address = self.shown.clone();
        match status {
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => {
                let what = "its ETag is another one".to_owned();
                Err(Error::Changed { address, what })
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Ok(status.to_string()),
            status if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
                Ok(format!("the server answers {status}"))
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                let what = ": it wants credentials, or others (--anonymous: none)";
                Err(Error::Status { address, status: status.to_string(), what })
            }
            _ => {
                let status = format!("{status} {code}").trim_end().to_owned();
                Err(Error::Status { address, status, what: "" })
            }
        }
    }

    /// The error of an answer that lacks what every such answer has.
    pub fn strange(&self, answer: &Answer) -> Error {
        let sent = match between(&answer.body, "Code") {
            Some(code) => code,
            None => format!("{} bytes", answer.body.len()),
        };
        let asked = "a part of an upload".to_owned();
        Error::Wrong { address: self.shown.clone(), asked, sent }
    }
}

/// The text of the first element of this name.
pub(crate) fn between(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_owned())
}

/// The texts of all elements of this name, which hold no other one of it.
pub(crate) fn all_between<'a>(body: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = body;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(&begin)?;
        let (text, left) = behind.split_once(&end)?;
        rest = left;
        Some(text)
    })
}
