//! URLs of buckets, and where credentials come from.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{RemoteError, RemoteErrorKind, Result};

/// Place of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///directory`.
    pub url: String,
    /// Address of the server, for a store that is not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Region of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Source of the credentials. Their values are never stored.
    #[serde(default)]
    pub credentials: CredentialsFrom,
}

/// Source of credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialsFrom {
    /// The environment variables of the provider's own tools, or the machine's role.
    #[default]
    Environment,
    /// A profile in `~/.aws/credentials`, or in the file that `AWS_SHARED_CREDENTIALS_FILE` names.
    Profile(String),
    /// A file in the format of `~/.aws/credentials`, or a key file of Google.
    File(PathBuf),
}

/// Kinds of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    S3,
    Google,
    Azure,
    Directory,
}

impl Location {
    /// Returns the kind of the place, the bucket (or the directory) and the prefix without slashes around it. Fails with
    /// `Invalid` for any other URL.
    pub(super) fn parse(&self) -> Result<(Scheme, &str, &str)> {
        let bad = || {
            RemoteError::new(RemoteErrorKind::Invalid, format!("use {} as a remote", self.url))
                .hint("a remote is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY")
        };
        let (scheme, rest) = self.url.split_once("://").ok_or_else(bad)?;
        let scheme = match scheme {
            "s3" => Scheme::S3,
            "gs" => Scheme::Google,
            "az" => Scheme::Azure,
            "file" if rest.starts_with('/') => return Ok((Scheme::Directory, rest, "")),
            _ => return Err(bad()),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() { Err(bad()) } else { Ok((scheme, bucket, prefix.trim_matches('/'))) }
    }
}

/// Fails with `Invalid` if the address of a server is not http:// or https:// with a host.
pub(super) fn check_endpoint(endpoint: &str) -> Result<()> {
    let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
    // The parser skips further slashes.
    let has_host = rest.is_some_and(|rest| !rest.starts_with('/')) && reqwest::Url::parse(endpoint).is_ok();
    if has_host {
        return Ok(());
    }
    Err(RemoteError::new(RemoteErrorKind::Invalid, format!("use the endpoint {endpoint:?}"))
        .hint("an endpoint is the address of a server, such as https://s3.example.org or http://127.0.0.1:9000"))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> Location {
        Location { url: url.to_owned(), endpoint: None, region: None, credentials: CredentialsFrom::default() }
    }

    #[test]
    fn a_url_is_a_kind_a_bucket_and_a_prefix() {
        for (url, parts) in [
            ("s3://b", (Scheme::S3, "b", "")),
            ("s3://b/", (Scheme::S3, "b", "")),
            ("gs://b/a/c/", (Scheme::Google, "b", "a/c")),
            ("az://b/a", (Scheme::Azure, "b", "a")),
            ("file:///mnt/x", (Scheme::Directory, "/mnt/x", "")),
        ] {
            assert_eq!(at(url).parse().expect("a URL"), parts, "{url}");
        }
        for url in ["b", "s3://", "s3:///x", "file://x", "https://b/x", ""] {
            assert_eq!(at(url).parse().map_err(|error| error.kind), Err(RemoteErrorKind::Invalid), "{url}");
        }
    }
}
