//! A small server that speaks enough of S3 for tests, and that can be hostile: it delays, answers 503, drops the connection
//! after it has done what was asked, never answers, does it twice, lists what was there a while ago, has a clock that is days
//! off, deletes nothing, ignores conditions, and kills the client at a given request.
//!
//! Signatures are not checked. The access key names the client.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Dice;

mod answer;

/// Misbehaviour of the server. The default has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hostility {
    /// Of 1,000 requests, the number that are answered with 503 before anything is done.
    pub unavailable: usize,
    /// Of 1,000 writes, the number that are done and get no answer.
    pub dropped: usize,
    /// Of 1,000 writes, the number that are answered with 409 before anything is done.
    pub conflicts: usize,
    /// Of 1,000 writes, the number that are done a second time after `delay_millis_max`.
    pub duplicated: usize,
    /// Longest delay of an answer.
    pub delay_millis_max: u64,
    /// The number of parts of uploads, from now on, that get no answer while the client waits.
    pub stalled_parts: usize,
    /// Deletions of names with this text are answered with 400.
    pub undeletable: Option<&'static str>,
    /// Listings show what was there this long ago.
    pub list_lag_millis: u64,
    /// Difference of the clock to the right time.
    pub clock_secs: i64,
}

/// A stored object.
#[derive(Debug, Clone)]
struct Stored {
    bytes: Arc<Vec<u8>>,
    modified_secs: i64,
}

/// One version of the set of objects.
#[derive(Debug, Clone)]
struct Event {
    at: Instant,
    key: String,
    /// `None` if it was deleted.
    object: Option<Stored>,
}

#[derive(Debug, Default)]
struct Contents {
    objects: BTreeMap<String, Stored>,
    /// Changes that listings may not show yet.
    recent: Vec<Event>,
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
}

/// Action at a request of a client.
type KillSwitch = Box<dyn Fn() + Send>;

struct Shared {
    contents: Mutex<Contents>,
    hostility: Mutex<Hostility>,
    dice: Mutex<Dice>,
    requests: Mutex<BTreeMap<String, u64>>,
    bytes_out: AtomicU64,
    kills: Mutex<BTreeMap<String, (u64, bool, KillSwitch)>>,
    ends: AtomicBool,
}

/// A running server. Dropping it stops it.
pub struct S3Server {
    port: u16,
    shared: Arc<Shared>,
}

impl S3Server {
    /// Starts a server with an empty bucket of any name.
    pub fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            contents: Mutex::default(),
            hostility: Mutex::default(),
            dice: Mutex::new(Dice::new(seed)),
            requests: Mutex::default(),
            bytes_out: AtomicU64::new(0),
            kills: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.ends.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&serving);
                thread::spawn(move || serve(&serving, stream));
            }
        });
        Self { port, shared }
    }

    /// Returns the address for clients.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sets the misbehaviour from now on.
    pub fn set(&self, hostility: Hostility) {
        *self.shared.hostility.lock().expect("no panic") = hostility;
    }

    /// Calls `kill` at the request number `nth` of a client from now on: before it is worked on, or after. The request is not
    /// answered.
    pub fn kill_at(&self, client: &str, nth: u64, after: bool, kill: impl Fn() + Send + 'static) {
        let so_far = self.requests_of(client);
        self.shared.kills.lock().expect("no panic").insert(client.to_owned(), (so_far + nth, after, Box::new(kill)));
    }

    /// Forgets [`Self::kill_at`].
    pub fn spare(&self, client: &str) {
        self.shared.kills.lock().expect("no panic").remove(client);
    }

    /// Returns the number of requests that a client has made.
    pub fn requests_of(&self, client: &str) -> u64 {
        self.shared.requests.lock().expect("no panic").get(client).copied().unwrap_or(0)
    }

    /// Returns the number of uploads in parts that were neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.shared.contents.lock().expect("no panic").uploads.len()
    }

    /// Returns the number of bytes of objects that were read.
    pub fn bytes_out(&self) -> u64 {
        self.shared.bytes_out.load(Ordering::Relaxed)
    }

    /// Returns the names of all objects, without the bucket.
    pub fn keys(&self) -> Vec<String> {
        let contents = self.shared.contents.lock().expect("no panic");
        contents.objects.keys().map(|key| key.split_once('/').map_or(&**key, |(_, key)| key).to_owned()).collect()
    }

    /// Returns an object of a bucket.
    pub fn get(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        let contents = self.shared.contents.lock().expect("no panic");
        contents.objects.get(&format!("{bucket}/{key}")).map(|stored| stored.bytes.to_vec())
    }

    /// Writes or deletes an object of a bucket.
    pub fn put(&self, bucket: &str, key: &str, bytes: Option<Vec<u8>>) {
        self.shared.change(&format!("{bucket}/{key}"), bytes);
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn now_secs(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        i64::try_from(now).unwrap_or(0) + self.hostility().clock_secs
    }

    fn hostility(&self) -> Hostility {
        *self.hostility.lock().expect("no panic")
    }

    fn rolls(&self, of_thousand: usize) -> bool {
        of_thousand > 0 && self.dice.lock().expect("no panic").roll(1000) < of_thousand
    }

    /// Returns true for a part that gets no answer.
    fn stalls(&self) -> bool {
        let mut hostility = self.hostility.lock().expect("no panic");
        let stalls = hostility.stalled_parts > 0;
        hostility.stalled_parts = hostility.stalled_parts.saturating_sub(1);
        stalls
    }

    fn change(&self, key: &str, bytes: Option<Vec<u8>>) {
        let modified_secs = self.now_secs();
        let object = bytes.map(|bytes| Stored { bytes: Arc::new(bytes), modified_secs });
        let mut contents = self.contents.lock().expect("no panic");
        let before = match &object {
            Some(stored) => contents.objects.insert(key.to_owned(), stored.clone()),
            None => contents.objects.remove(key),
        };
        let lag = Duration::from_millis(self.hostility().list_lag_millis);
        contents.recent.retain(|event| event.at.elapsed() < lag);
        contents.recent.push(Event { at: Instant::now(), key: key.to_owned(), object: before });
    }

    /// Returns what a listing shows.
    fn listed(&self, prefix: &str) -> Vec<(String, Stored)> {
        let lag = Duration::from_millis(self.hostility().list_lag_millis);
        let contents = self.contents.lock().expect("no panic");
        let mut shown = contents.objects.clone();
        for event in contents.recent.iter().rev().filter(|event| event.at.elapsed() < lag) {
            match &event.object {
                Some(stored) => drop(shown.insert(event.key.clone(), stored.clone())),
                None => drop(shown.remove(&event.key)),
            }
        }
        shown.into_iter().filter(|(key, _)| key.starts_with(prefix)).collect()
    }
}

/// A request as it was read.
struct Request {
    method: String,
    /// Bucket and key, decoded.
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn client(&self) -> String {
        let authorization = self.headers.get("authorization").map(String::as_str).unwrap_or_default();
        let key = authorization.split_once("Credential=").and_then(|(_, rest)| rest.split('/').next());
        key.unwrap_or("anonymous").to_owned()
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    };
    let query = query.split('&').filter(|part| !part.is_empty()).map(pair).collect();
    Some(Request { method, path: decode(path.trim_start_matches('/')), query, headers, body })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
                bytes.extend(digits.and_then(|two| u8::from_str_radix(two, 16).ok()));
                rest = after.get(2..).unwrap_or_default();
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Serves one connection until it ends.
fn serve(shared: &Arc<Shared>, stream: TcpStream) -> Option<()> {
    let mut out = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let request = read_request(&mut reader)?;
        if shared.ends.load(Ordering::Relaxed) {
            return None;
        }
        let client = request.client();
        let number = {
            let mut requests = shared.requests.lock().expect("no panic");
            let count = requests.entry(client.clone()).or_default();
            *count += 1;
            *count
        };
        if kill(shared, &client, number, false) {
            return None;
        }
        let hostility = shared.hostility();
        let is_head = request.method == "HEAD";
        let is_write = matches!(&*request.method, "PUT" | "POST" | "DELETE");
        if shared.rolls(hostility.unavailable) {
            answer::send(&mut out, is_head, 503, &[], b"<Error><Code>SlowDown</Code></Error>").ok()?;
            continue;
        }
        if is_write && shared.rolls(hostility.conflicts) {
            answer::send(&mut out, is_head, 409, &[], b"<Error><Code>OperationAborted</Code></Error>").ok()?;
            continue;
        }
        if request.query.contains_key("partNumber") && shared.stalls() {
            // Returns when the client has closed the connection.
            let _ = reader.read_to_end(&mut Vec::new());
            return None;
        }
        let is_undeletable = hostility.undeletable.is_some_and(|text| request.path.contains(text));
        if is_undeletable && request.method == "DELETE" && !request.query.contains_key("uploadId") {
            answer::send(&mut out, is_head, 400, &[], b"<Error><Code>NotImplemented</Code></Error>").ok()?;
            continue;
        }
        let reply = answer::answer(shared, &request);
        if is_write && shared.rolls(hostility.duplicated) {
            let (shared, delay) = (Arc::clone(shared), hostility.delay_millis_max);
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(delay));
                answer::answer(&shared, &request)
            });
        }
        if kill(shared, &client, number, true) || is_write && shared.rolls(hostility.dropped) {
            return None;
        }
        if hostility.delay_millis_max > 0 {
            let most = usize::try_from(hostility.delay_millis_max).unwrap_or(1);
            let millis = shared.dice.lock().expect("no panic").roll(most + 1);
            thread::sleep(Duration::from_millis(millis as u64));
        }
        shared.bytes_out.fetch_add(reply.object_bytes, Ordering::Relaxed);
        answer::send(&mut out, is_head, reply.status, &reply.headers, &reply.body).ok()?;
        out.flush().ok()?;
    }
}

/// Kills the client if this is the request. Returns true if it did.
fn kill(shared: &Shared, client: &str, number: u64, is_after: bool) -> bool {
    let due = {
        let mut kills = shared.kills.lock().expect("no panic");
        let is_due = kills.get(client).is_some_and(|(nth, after, _)| number >= *nth && *after == is_after);
        is_due.then(|| kills.remove(client)).flatten()
    };
    // Without the lock: it may make requests of its own.
    due.is_some_and(|(_, _, kill)| {
        kill();
        true
    })
}
