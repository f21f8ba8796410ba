//! What an object has beside its bytes: metadata, tags, the access list. An object that takes the
//! place of another one has none of it unless it is sent for it.
//!
//! Source: Amazon, "Amazon Simple Storage Service API Reference" (HeadObject, GetObjectAcl,
//! GetObjectTagging, CreateMultipartUpload), and "Access control list (ACL) overview" in its user
//! guide.

use reqwest::Method;
use reqwest::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
    HeaderMap, HeaderName,
};
use url::form_urlencoded::Serializer;

use crate::Error;
use crate::s3::{Client, all_between, between};

/// Headers of an object that a new one is given.
const HEADERS: [HeaderName; 11] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    EXPIRES,
    HeaderName::from_static("x-amz-server-side-encryption"),
    HeaderName::from_static("x-amz-server-side-encryption-aws-kms-key-id"),
    HeaderName::from_static("x-amz-server-side-encryption-bucket-key-enabled"),
    HeaderName::from_static("x-amz-storage-class"),
    HeaderName::from_static("x-amz-website-redirect-location"),
];
/// Begins the names of headers that users choose.
const OWN: &str = "x-amz-meta-";
const TAGS: HeaderName = HeaderName::from_static("x-amz-tagging");
/// Rights on an object, and the header that gives each. `WRITE` has no meaning for objects.
const RIGHTS: [(&str, HeaderName); 4] = [
    ("FULL_CONTROL", HeaderName::from_static("x-amz-grant-full-control")),
    ("READ", HeaderName::from_static("x-amz-grant-read")),
    ("READ_ACP", HeaderName::from_static("x-amz-grant-read-acp")),
    ("WRITE_ACP", HeaderName::from_static("x-amz-grant-write-acp")),
];

/// Headers by which a new object gets what the present one has.
///
/// # Errors
/// The store does not show it, or it shows what cannot be sent.
pub(crate) fn of(client: &Client) -> Result<Vec<(HeaderName, String)>, Error> {
    let head = client.send(Method::HEAD, "", &[], Vec::new())?;
    let mut kept = metadata(&head.headers).map_err(|name| {
        let what = format!("the metadata `{name}` is no text, so that it cannot be kept{HINT}");
        Error::Setup { address: client.shown.clone(), what }
    })?;
    if let Some(tags) = ask(client, "tagging=", "tags")? {
        kept.extend(tagging(&tags).map(|tags| (TAGS, tags)));
    }
    if let Some(list) = ask(client, "acl=", "access list")? {
        let grants = grants(&list).map_err(|what| {
            let what = format!("its access list has {what}, which cannot be kept{HINT}");
            Error::Setup { address: client.shown.clone(), what }
        })?;
        kept.extend(grants);
    }
    Ok(kept)
}

const HINT: &str = "; --new-properties gives the object those of a new one";

/// What the store answers to a question about the object; none where it keeps no such thing.
fn ask(client: &Client, query: &str, name: &str) -> Result<Option<String>, Error> {
    match client.send(Method::GET, query, &[], Vec::new()) {
        Ok(answer) => Ok(Some(answer.body)),
        Err(Error::Status { status, .. })
            if ["404", "405", "501"].iter().any(|code| status.starts_with(code)) =>
        {
            Ok(None)
        }
        Err(Error::Status { address, status, .. }) => {
            let what =
                format!("its {name} cannot be read ({status}), so that it would be lost{HINT}");
            Err(Error::Setup { address, what })
        }
        Err(error) => Err(error),
    }
}

/// The metadata; the name of what is no text.
fn metadata(headers: &HeaderMap) -> Result<Vec<(HeaderName, String)>, HeaderName> {
    let is_kept = |name: &HeaderName| HEADERS.contains(name) || name.as_str().starts_with(OWN);
    let kept = headers.iter().filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| match value.to_str() {
        Ok(text) => Ok((name.clone(), text.to_owned())),
        Err(_) => Err(name.clone()),
    })
    .collect()
}

/// Tags as a header has them; none where there are none.
fn tagging(body: &str) -> Option<String> {
    let mut text = Serializer::new(String::new());
    for tag in all_between(body, "Tag") {
        let part = |name| between(tag, name).map(|text| plain(&text)).unwrap_or_default();
        text.append_pair(&part("Key"), &part("Value"));
    }
    Some(text.finish()).filter(|text| !text.is_empty())
}

/// Headers that make the access list anew: none where the owner alone has all rights, as with every
/// new object. In words, what such headers cannot say.
fn grants(body: &str) -> Result<Vec<(HeaderName, String)>, String> {
    let owner = between(body, "Owner").and_then(|owner| between(&owner, "ID"));
    let mut headers: Vec<(HeaderName, String)> = Vec::new();
    let mut only_owner = true;
    for grant in all_between(body, "Grant") {
        let right = between(grant, "Permission").unwrap_or_default();
        let id = between(grant, "ID");
        only_owner &= right == "FULL_CONTROL" && id.is_some() && id == owner;
        let who = match (id, between(grant, "URI"), between(grant, "EmailAddress")) {
            (Some(id), ..) => format!("id=\"{}\"", plain(&id)),
            (_, Some(group), _) => format!("uri=\"{}\"", plain(&group)),
            (_, _, Some(mail)) => format!("emailAddress=\"{}\"", plain(&mail)),
            _ => return Err("a grantee of an unknown kind".to_owned()),
        };
        if right == "WRITE" {
            continue;
        }
        let header = RIGHTS.into_iter().find(|(name, _)| *name == right).map(|(_, header)| header);
        let header = header.ok_or_else(|| format!("the unknown right `{right}`"))?;
        match headers.iter_mut().find(|(name, _)| *name == header) {
            Some((_, all)) => *all = format!("{all}, {who}"),
            None => headers.push((header, who)),
        }
    }
    Ok(if only_owner { Vec::new() } else { headers })
}

/// The text of an element without its entities.
fn plain(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    text.replace("&apos;", "'").replace("&#39;", "'").replace("&#34;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(grants: &[(&str, &str)]) -> String {
        let grant = |(who, right): &(&str, &str)| {
            format!(
                "<Grant><Grantee xmlns:xsi=\"x\" xsi:type=\"y\">{who}</Grantee><Permission>{right}\
                 </Permission></Grant>"
            )
        };
        let grants: String = grants.iter().map(grant).collect();
        format!(
            "<AccessControlPolicy><Owner><ID>me</ID></Owner><AccessControlList>{grants}\
             </AccessControlList></AccessControlPolicy>"
        )
    }

    #[test]
    fn access_lists_are_headers() {
        let (me, all) = ("<ID>me</ID><DisplayName>I</DisplayName>", "<URI>http://a/All</URI>");
        assert_eq!(grants(&list(&[(me, "FULL_CONTROL")])), Ok(Vec::new()));
        let found = grants(&list(&[(me, "FULL_CONTROL"), (all, "READ"), ("<ID>b</ID>", "READ")]));
        let found: Vec<String> =
            found.unwrap().iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            found,
            [
                "x-amz-grant-full-control: id=\"me\"",
                "x-amz-grant-read: uri=\"http://a/All\", id=\"b\""
            ]
        );
        assert!(grants(&list(&[("<ID>other</ID>", "FULL_CONTROL")])).unwrap().len() == 1);
        assert!(grants(&list(&[(me, "FLY")])).unwrap_err().contains("`FLY`"));
        assert!(grants(&list(&[("<Moon/>", "READ")])).is_err());
    }

    #[test]
    fn tags_are_a_query() {
        let body = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag><Tag>\
                    <Key>c</Key><Value></Value></Tag></TagSet></Tagging>";
        assert_eq!(tagging(body).as_deref(), Some("a+b=1%262&c="));
        assert_eq!(tagging("<Tagging><TagSet></TagSet></Tagging>"), None);
    }
}
