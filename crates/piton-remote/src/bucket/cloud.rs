//! An object store as a bucket, by `object_store`. One thread runs its requests; callers block.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt as _, RetryConfig, WriteMultipart};
use tokio::runtime::Runtime;

use super::location::{CredentialsFrom, Location, Scheme, check_endpoint};
use super::{Bucket, ObjectInfo};
use crate::error::{RemoteError, RemoteErrorKind, Result};

/// Larger files are sent in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// Parts that are sent at the same time. After a timeout, they are sent one at a time.
const PARTS_AT_ONCE: usize = 3;
/// Larger objects are written with the limits for parts.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// Retries of one request.
const RETRIES_MAX: usize = 6;
/// Attempts of a write that the server declines because of another one, and the pause before the second.
const CONFLICTS_MAX: u32 = 4;
const CONFLICT_MILLIS: u64 = 50;

/// Times of requests.
#[derive(Debug, Clone, Copy)]
struct RequestLimits {
    /// Time until an answer begins, which includes that for sending, and then between two pieces of it. A download may take
    /// any time.
    answer: Duration,
    /// Time after which a request is not tried again by the library. A request is signed once, so that it is less than the
    /// 15 minutes for which a signature holds.
    retry: Duration,
}

/// Limits of requests with little to send: a connection that stalls is tried again.
const SMALL_LIMITS: RequestLimits =
    RequestLimits { answer: Duration::from_secs(120), retry: Duration::from_secs(5 * 60) };
/// Limits for parts. Three at once fit into 0.4 Mbit/s, and one into 0.12 Mbit/s. A timeout is not tried again by the
/// library, which would send as many at once.
const PART_LIMITS: RequestLimits =
    RequestLimits { answer: Duration::from_secs(10 * 60), retry: Duration::from_secs(2 * 60) };

/// Parts of the addresses at which machines of the providers ask for the credentials of their role, as the library does if
/// the environment has none.
const METADATA_PATHS: [&str; 4] =
    ["/latest/api/token", "/latest/meta-data/", "/computeMetadata/", "/metadata/identity/"];

/// A bucket in an object store.
pub(super) struct CloudBucket {
    store: Arc<dyn ObjectStore>,
    /// The same store, with the limits for parts.
    parts: Arc<dyn ObjectStore>,
    runtime: Runtime,
    prefix: String,
    /// The prefix as it is in the names of objects: the library encodes some characters, and drops empty parts.
    root: Key,
    name: String,
}

impl CloudBucket {
    pub(super) fn open(location: &Location, scheme: Scheme, bucket: &str, prefix: &str) -> Result<Self> {
        Self::with_limits(location, scheme, bucket, prefix, [SMALL_LIMITS, PART_LIMITS])
    }

    fn with_limits(
        location: &Location,
        scheme: Scheme,
        bucket: &str,
        prefix: &str,
        [small, part]: [RequestLimits; 2],
    ) -> Result<Self> {
        // Fails if there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        location.endpoint.as_deref().map_or(Ok(()), check_endpoint)?;
        let open = |limits| match scheme {
            Scheme::S3 => s3(location, bucket, limits),
            Scheme::Google => google(location, bucket, limits),
            Scheme::Azure | Scheme::Directory => azure(location, bucket, limits),
        };
        let (store, parts) = (open(small)?, open(part)?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime =
            runtime.map_err(|error| RemoteError::new(RemoteErrorKind::Io, format!("start a thread: {error}")))?;
        Ok(Self { store, parts, runtime, prefix: prefix.to_owned(), root: prefix.into(), name: location.to_string() })
    }

    fn key(&self, key: &str) -> Key {
        Key::from(if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) })
    }

    /// Fails with `Unavailable` for an object outside of the prefix, which the store should not have listed.
    fn info(&self, found: &object_store::ObjectMeta) -> Result<ObjectInfo> {
        let (key, root) = (found.location.as_ref(), self.root.as_ref());
        let below =
            if root.is_empty() { Some(key) } else { key.strip_prefix(root).and_then(|rest| rest.strip_prefix('/')) };
        let outside = || {
            let what = format!("list {}: the store lists {key}, which is not below {root}", self.name);
            RemoteError::new(RemoteErrorKind::Unavailable, what)
        };
        let key = below.ok_or_else(outside)?.to_owned();
        Ok(ObjectInfo { key, bytes: found.size, modified_secs: found.last_modified.timestamp() })
    }

    fn failed(&self, what: &str, key: &str, error: &object_store::Error) -> RemoteError {
        describe(&format!("{what} {key} in {}", self.name), error)
    }

    /// Returns `None` for an object that does not exist.
    fn found<T>(&self, what: &str, key: &str, result: object_store::Result<T>) -> Result<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { source, .. }) if !is_missing_bucket(&source.to_string()) => Ok(None),
            Err(error) => Err(self.failed(what, key, &error)),
        }
    }

    /// Tries a write again that the server declined because of another one: the library does not.
    fn repeated<T>(&self, write: impl Fn() -> object_store::Result<T>) -> object_store::Result<T> {
        for attempt in 0..CONFLICTS_MAX {
            match write() {
                Err(error) if error.to_string().contains("OperationAborted") || is_conflict(&error) => {
                    std::thread::sleep(Duration::from_millis(CONFLICT_MILLIS << attempt));
                }
                done => return done,
            }
        }
        write()
    }

    /// Sends a file in parts. An upload that fails leaves no part behind, as far as the store can be reached.
    async fn put_parts(
        &self,
        key: &str,
        file: &mut File,
        at_once: usize,
        sent: &mut dyn FnMut(u64),
    ) -> object_store::Result<()> {
        let upload = self.parts.put_multipart(&self.key(key)).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        match write_parts(&mut upload, file, at_once, sent).await {
            Ok(()) => upload.finish().await.map(drop),
            Err(error) => {
                // The first error says more.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }
}

/// Writes a file in parts, from its start. All of them are written on return, but the last if it is smaller.
async fn write_parts(
    upload: &mut WriteMultipart,
    file: &mut File,
    at_once: usize,
    sent: &mut dyn FnMut(u64),
) -> object_store::Result<()> {
    let failed = |source| object_store::Error::Generic { store: "file", source: Box::new(source) };
    file.rewind().map_err(failed)?;
    let mut part = vec![0; PART_BYTES];
    loop {
        let got = fill(file, &mut part).map_err(failed)?;
        if got == 0 {
            return upload.wait_for_capacity(0).await;
        }
        upload.wait_for_capacity(at_once).await?;
        upload.write(&part[..got]);
        sent(got as u64);
    }
}

fn fill(file: &mut File, part: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < part.len() {
        match file.read(&mut part[got..])? {
            0 => break,
            more => got += more,
        }
    }
    Ok(got)
}

impl Bucket for CloudBucket {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let got = self.runtime.block_on(async { self.store.get(&self.key(key)).await?.bytes().await });
        Ok(self.found("read", key, got)?.map(Vec::from))
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let wanted = range.end - range.start;
        let got = self.runtime.block_on(self.store.get_range(&self.key(key), range));
        match self.found("read", key, got)? {
            Some(bytes) if bytes.len() as u64 != wanted => Err(RemoteError::damaged(key, "it is shorter than it was")),
            bytes => Ok(bytes.map(Vec::from)),
        }
    }

    fn put(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        let bytes = bytes::Bytes::from(bytes);
        let store = if bytes.len() > SMALL_BYTES_MAX { &self.parts } else { &self.store };
        let put = self.repeated(|| self.runtime.block_on(store.put(&self.key(key), bytes.clone().into())));
        put.map(drop).map_err(|error| self.failed("write", key, &error))
    }

    fn put_file(&self, key: &str, file: &Path, sent: &mut dyn FnMut(u64)) -> Result<()> {
        let mut opened = File::open(file).map_err(|error| RemoteError::io("read", file, &error))?;
        let bytes = opened.metadata().map_or(0, |found| found.len());
        if bytes <= PART_BYTES as u64 {
            let mut all = Vec::new();
            opened.read_to_end(&mut all).map_err(|error| RemoteError::io("read", file, &error))?;
            self.put(key, all)?;
            sent(bytes);
            return Ok(());
        }
        // What is sent again is not counted again.
        let mut counted = 0_u64;
        let mut put = |at_once| {
            let mut so_far = 0_u64;
            let mut count = |more| {
                so_far += more;
                sent(so_far.saturating_sub(counted).min(more));
                counted = counted.max(so_far);
            };
            self.runtime.block_on(self.put_parts(key, &mut opened, at_once, &mut count))
        };
        let done = match put(PARTS_AT_ONCE) {
            Err(error) if is_timeout(&error) => put(1),
            done => done,
        };
        done.map_err(|error| self.failed("write", key, &error))
    }

    fn head(&self, key: &str) -> Result<Option<ObjectInfo>> {
        let head = self.runtime.block_on(self.store.head(&self.key(key)));
        self.found("look at", key, head)?.map(|found| self.info(&found)).transpose()
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let at = self.key(prefix.trim_end_matches('/'));
        let listed = self.runtime.block_on(self.store.list(Some(&at)).try_collect::<Vec<_>>());
        let mut found: Vec<_> = match listed {
            Ok(found) => found.iter().map(|one| self.info(one)).collect::<Result<_>>()?,
            Err(object_store::Error::NotFound { source, .. }) if !is_missing_bucket(&source.to_string()) => Vec::new(),
            Err(error) => return Err(self.failed("list", prefix, &error)),
        };
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn delete(&self, key: &str) -> Result<()> {
        let deleted = self.repeated(|| self.runtime.block_on(self.store.delete(&self.key(key))));
        self.found("remove", key, deleted).map(drop)
    }
}

fn is_conflict(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. })
}

/// Returns true if the store has not answered in time.
fn is_timeout(error: &object_store::Error) -> bool {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let mut kinds = causes.filter_map(|cause| cause.downcast_ref::<HttpError>()).map(HttpError::kind);
    kinds.any(|kind| kind == HttpErrorKind::Timeout)
}

fn is_missing_bucket(text: &str) -> bool {
    text.contains("NoSuchBucket") || text.contains("ContainerNotFound") || text.contains("bucket does not exist")
}

/// Turns an error of the store into words and advice.
fn describe(what: &str, error: &object_store::Error) -> RemoteError {
    use RemoteErrorKind::{Clock, Credentials, Denied, NotFound, Unavailable};
    let text = error.to_string();
    let has = |word: &str| text.contains(word);
    if METADATA_PATHS.iter().any(|path| has(path)) {
        return no_credentials("this environment has none, and neither has a role of this machine");
    }
    let (kind, why, hint) = if has("RequestTimeTooSkewed") {
        (Clock, "the clocks of this machine and of the store differ too much", "set the clock of this machine")
    } else if is_missing_bucket(&text) {
        (NotFound, "there is no such bucket", "create it, or correct the name and `--region`")
    } else if has("InvalidAccessKeyId")
        || has("SignatureDoesNotMatch")
        || has("ExpiredToken")
        || has("Missing Credentials")
        || has("InvalidToken")
        || matches!(error, object_store::Error::Unauthenticated { .. })
    {
        (Credentials, "the store does not accept the credentials", "see `piton remote status` for where they come from")
    } else if has("AccessDenied") || matches!(error, object_store::Error::PermissionDenied { .. }) {
        (Denied, "the credentials do not permit it", "SECURITY lists what each role of a bucket needs")
    } else if has("PermanentRedirect") || has("AuthorizationHeaderMalformed") || has("incorrectly configured region") {
        (RemoteErrorKind::Invalid, "the bucket is in another region", "give it with `--region`")
    } else {
        (Unavailable, "", "check the address and the network, and try again")
    };
    // The whole chain of causes is long, and says at its end what is wrong.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let why = if why.is_empty() { cause.to_string() } else { why.to_owned() };
    RemoteError::new(kind, format!("{what}: {why}")).hint(hint)
}

fn retry(limits: RequestLimits) -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(8), base: 2. };
    RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: limits.retry }
}

fn options(endpoint: Option<&str>, limits: RequestLimits) -> ClientOptions {
    let options = ClientOptions::new().with_timeout_disabled().with_read_timeout(limits.answer);
    options.with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")))
}

fn no_credentials(what: impl std::fmt::Display) -> RemoteError {
    RemoteError::new(RemoteErrorKind::Credentials, format!("find credentials: {what}"))
        .hint("set the variables of the provider, or name a profile or a file with `piton remote add`")
}

fn s3(location: &Location, bucket: &str, limits: RequestLimits) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry(limits));
    let endpoint = location.endpoint.clone().or_else(|| std::env::var("AWS_ENDPOINT_URL").ok());
    // Some servers delete one object at a time only.
    builder = builder.with_client_options(options(endpoint.as_deref(), limits)).with_disable_bulk_delete(true);
    if let Some(endpoint) = &endpoint {
        check_endpoint(endpoint)?;
        builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
    }
    if let Some(region) = &location.region {
        builder = builder.with_region(region);
    }
    let profile = match &location.credentials {
        CredentialsFrom::Environment => None,
        CredentialsFrom::Profile(name) => Some((default_credentials_file()?, name.clone())),
        CredentialsFrom::File(path) => Some((path.clone(), "default".to_owned())),
    };
    if let Some((path, name)) = profile {
        let found = read_profile(&path, &name)?;
        let value = |key: &str| found.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        let missing = || no_credentials(format!("{} has no keys for the profile {name}", path.display()));
        builder = builder
            .with_access_key_id(value("aws_access_key_id").ok_or_else(missing)?)
            .with_secret_access_key(value("aws_secret_access_key").ok_or_else(missing)?);
        if let Some(token) = value("aws_session_token") {
            builder = builder.with_token(token);
        }
    } else if endpoint.is_some() && std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
        // Without this, the library would ask the metadata service of a cloud machine for them.
        return Err(no_credentials("AWS_ACCESS_KEY_ID is not set"));
    }
    Ok(Arc::new(builder.build().map_err(no_credentials)?))
}

fn google(location: &Location, bucket: &str, limits: RequestLimits) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry(limits));
    builder = builder.with_client_options(options(location.endpoint.as_deref(), limits));
    if let Some(endpoint) = &location.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    match &location.credentials {
        CredentialsFrom::Environment => {}
        CredentialsFrom::File(path) => builder = builder.with_service_account_path(path.to_string_lossy()),
        CredentialsFrom::Profile(_) => return Err(not_read_from("--profile", "or `--credentials-file`")),
    }
    Ok(Arc::new(builder.build().map_err(no_credentials)?))
}

/// Fails for a source of credentials that the provider's own tools do not have.
fn not_read_from(option: &str, others: &str) -> RemoteError {
    RemoteError::new(RemoteErrorKind::Invalid, format!("use {option} with this provider"))
        .hint(format!("its credentials come from the environment {others}").trim_end())
}

fn azure(location: &Location, container: &str, limits: RequestLimits) -> Result<Arc<dyn ObjectStore>> {
    match &location.credentials {
        CredentialsFrom::Environment => {}
        CredentialsFrom::File(_) => return Err(not_read_from("--credentials-file", "")),
        CredentialsFrom::Profile(_) => return Err(not_read_from("--profile", "")),
    }
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container).with_retry(retry(limits));
    builder = builder.with_client_options(options(location.endpoint.as_deref(), limits));
    if let Some(endpoint) = &location.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    Ok(Arc::new(builder.build().map_err(no_credentials)?))
}

fn default_credentials_file() -> Result<PathBuf> {
    let named = std::env::var_os("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
    let found = named.or_else(|| Some(std::env::home_dir()?.join(".aws/credentials")));
    found.ok_or_else(|| no_credentials("there is no home directory"))
}

/// Returns the keys of one profile in a file of sections, `[name]`, with lines `key = value`.
fn read_profile(path: &Path, name: &str) -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(path).map_err(|error| no_credentials(format!("{}: {error}", path.display())))?;
    let mut is_it = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']').trim();
            is_it = section == name || section.strip_prefix("profile ") == Some(name);
        } else if is_it && let Some((key, value)) = line.split_once('=') {
            found.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_role_has_no_credentials() {
        let address = "Error performing PUT http://169.254.169.254/latest/api/token in 9s, after 6 retries";
        let error = object_store::Error::Generic { store: "S3", source: address.into() };
        let described = describe("read piton.json in s3://b", &error);
        assert_eq!(described.kind, RemoteErrorKind::Credentials);
        assert!(described.message.starts_with("find credentials"), "{}", described.message);
    }

    /// With three parts at once, the first gets no answer, as if the network were too slow for them.
    #[test]
    fn a_part_that_gets_no_answer_is_sent_again_and_leaves_nothing_behind() {
        let server = testkit::s3::S3Server::start(1);
        let dir = tempfile::tempdir().expect("a directory");
        let (credentials, file) = (dir.path().join("credentials"), dir.path().join("file"));
        std::fs::write(&credentials, "[default]\naws_access_key_id = a\naws_secret_access_key = b\n").expect("a file");
        let contents = testkit::Dice::new(5).noise(PART_BYTES * 5 / 2);
        std::fs::write(&file, &contents).expect("a file");
        let location = Location {
            url: "s3://bucket/p".to_owned(),
            endpoint: Some(server.endpoint()),
            region: Some("x".to_owned()),
            credentials: CredentialsFrom::File(credentials),
        };
        let short = RequestLimits { answer: Duration::from_secs(5), retry: Duration::from_secs(1) };
        let bucket =
            CloudBucket::with_limits(&location, Scheme::S3, "bucket", "p", [SMALL_LIMITS, short]).expect("a bucket");
        server.set(testkit::s3::Hostility { stalled_parts: 1, ..Default::default() });
        let mut sent = 0;
        bucket.put_file("pack/x", &file, &mut |bytes| sent += bytes).expect("it is sent");
        assert_eq!((server.open_uploads(), sent), (0, contents.len() as u64));
        assert_eq!(server.get("bucket", "p/pack/x"), Some(contents));
        server.set(testkit::s3::Hostility { stalled_parts: 100, ..Default::default() });
        let error = bucket.put_file("pack/y", &file, &mut |_| {}).expect_err("no part is answered");
        assert_eq!((error.kind, server.open_uploads()), (RemoteErrorKind::Unavailable, 0), "{error}");
    }

    #[test]
    fn a_profile_is_a_section_of_the_credentials_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("credentials");
        let text =
            "[default]\naws_access_key_id = A\n\n[ work ]\n# no\nAWS_Access_Key_Id=B\naws_secret_access_key = c=d\n";
        std::fs::write(&file, text).expect("a file");
        let work = read_profile(&file, "work").expect("a profile");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(work, [pair("aws_access_key_id", "B"), pair("aws_secret_access_key", "c=d")]);
        assert_eq!(read_profile(&file, "default").expect("a profile"), [pair("aws_access_key_id", "A")]);
        assert_eq!(read_profile(&file, "other").expect("a file"), []);
        let missing = read_profile(&dir.path().join("none"), "x").expect_err("no file");
        assert_eq!(missing.kind, RemoteErrorKind::Credentials);
    }
}
