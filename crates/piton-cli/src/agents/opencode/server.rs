//! The server of opencode, started for a few requests on the loopback interface.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::conversation::{CONVERSATION_BYTES_MAX, WhyNot};
use crate::platform;

/// Time until the server listens.
const START: Duration = Duration::from_secs(60);
/// Time to wait for one answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Runs a program until it ends or stdin is closed, which happens even if this process is killed, and then kills the whole
/// group.
const UNTIL_CLOSED: &str = r#"{ "$0" "$@" < /dev/null; kill -KILL 0; } & cat > /dev/null; kill -KILL 0"#;
const ADDRESS: &str = "http://127.0.0.1:";
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A running server. It is killed when this is dropped, together with what it started.
pub(super) struct LoopbackServer {
    child: Child,
    port: u16,
    authorization: String,
}

impl LoopbackServer {
    /// Starts the server in a directory, without plugins, with a password that only this process knows.
    pub(super) fn start(program: &Path, dir: &Path) -> Result<Self, WhyNot> {
        let failed = |error: std::io::Error| WhyNot::new(format!("cannot run opencode: {error}"));
        let password = uuid::Uuid::new_v4().simple().to_string();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", UNTIL_CLOSED]).arg(program);
        command.args(["serve", "--hostname", "127.0.0.1", "--port", "0", "--pure"]).current_dir(dir);
        command.env("OPENCODE_SERVER_PASSWORD", &password).env_remove("OPENCODE_SERVER_USERNAME");
        command.env("OPENCODE_DISABLE_AUTOUPDATE", "1");
        platform::start_in_own_group(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut child = command.spawn().map_err(failed)?;
        let out = child.stdout.take();
        let mut server = Self { child, port: 0, authorization: base64(format!("opencode:{password}").as_bytes()) };
        let (send, ports) = mpsc::channel();
        let read = move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                let port = line.split_once(ADDRESS).map(|(_, rest)| rest.trim().trim_end_matches('/').to_owned());
                if let Some(Ok(port)) = port.map(|port| port.parse::<u16>()) {
                    let _ = send.send(port);
                }
            }
        };
        thread::Builder::new().spawn(read).map_err(failed)?;
        server.port = ports.recv_timeout(START).map_err(|_| WhyNot::new("the server of opencode did not start"))?;
        Ok(server)
    }

    /// Returns the answer to a request for reading. Sessions are looked up for the project in `dir`.
    pub(super) fn get(&self, dir: &Path, path: &str) -> Result<Value, WhyNot> {
        self.send(dir, "GET", path, &Value::Null)
    }

    /// Returns true if the server knows a path.
    pub(super) fn has(&self, dir: &Path, path: &str) -> Result<bool, WhyNot> {
        Ok(self.request(dir, "GET", path, "")?.0 != 404)
    }

    /// Sends a request, and returns the JSON of the answer.
    pub(super) fn send(&self, dir: &Path, method: &str, path: &str, body: &Value) -> Result<Value, WhyNot> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.request(dir, method, path, &body)?;
        if !(200..300).contains(&status) {
            return Err(WhyNot::new(format!("opencode answered {method} {path} with status {status}")));
        }
        serde_json::from_slice(&answer)
            .map_err(|_| WhyNot::format(format!("the answer of opencode to {method} {path}")))
    }

    /// Sends a request on a connection of its own, with which the answer ends.
    fn request(&self, dir: &Path, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), WhyNot> {
        let failed = |error: std::io::Error| WhyNot::new(format!("the server of opencode does not answer: {error}"));
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let head = format!(
            "{method} {path}?directory={} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Basic {}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            encoded(&dir.to_string_lossy()),
            self.port,
            self.authorization,
            body.len(),
        );
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        let mut piece = vec![0; 64 << 10];
        // The server may leave the connection open: the answer says where it ends.
        loop {
            let count = stream.read(&mut piece).map_err(failed)?;
            answer.extend_from_slice(&piece[..count]);
            match parse(&answer, count == 0) {
                Some(answer) => return Ok(answer),
                None if count == 0 => return Err(WhyNot::format("the answer of its server")),
                // The longest answer is that with all messages.
                None if answer.len() as u64 > CONVERSATION_BYTES_MAX => return Err(WhyNot::too_large()),
                None => {}
            }
        }
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        platform::kill_group(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the status and the body of an answer, or `None` if more of it is to come.
fn parse(answer: &[u8], is_closed: bool) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = &answer[end + 4..];
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_ascii_lowercase())
    };
    if header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        // Joining them at each piece that arrives would take quadratic time.
        return if answer.ends_with(LAST_CHUNK) { Some((status, joined(body)?)) } else { None };
    }
    match header("content-length").and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => Some((status, body.get(..length)?.to_vec())),
        None => is_closed.then(|| (status, body.to_vec())),
    }
}

fn joined(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&chunks[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        let start = end + 2;
        body.extend_from_slice(chunks.get(start..start.checked_add(size)?)?);
        if size == 0 {
            return Some(body);
        }
        chunks = chunks.get(start + size + 2..)?;
    }
}

/// Encodes a text for a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_and_without_chunks() {
        let open = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}";
        assert_eq!((parse(open, false), parse(open, true)), (None, Some((200, b"{}".to_vec()))));
        let long = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!((parse(&long[..long.len() - 1], false), parse(long, false)), (None, Some((200, b"{}".to_vec()))));
        let chunked = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked, false), Some((404, b"abcde".to_vec())));
        for broken in [
            &b""[..],
            b"HTTP/1.1 200",
            b"HTTP/1.1 x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab",
        ] {
            assert_eq!(parse(broken, true), None);
        }
    }

    #[test]
    fn names_and_passwords_are_encoded() {
        assert_eq!(encoded("/a b/ü&"), "/a%20b/%C3%BC%26");
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("opencode:x", "b3BlbmNvZGU6eA==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
