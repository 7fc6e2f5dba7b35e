//! A small HTTP/1.1 server on loopback: one request per connection, the whole reply at once.
//!
//! Enough for the clients of the scripted model. A stream of events is sent as one body, which every client reads as if
//! it had come slowly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Maximum size of a request's body. Larger requests are refused.
const BODY_BYTES_MAX: usize = 64 << 20;
const LINE_BYTES_MAX: u64 = 64 << 10;
const HEADERS_MAX: usize = 200;
const IDLE: Duration = Duration::from_secs(60);

/// One request, read to its end.
pub(super) struct Request {
    pub(super) method: String,
    /// Path with its query.
    pub(super) target: String,
    pub(super) body: Vec<u8>,
}

pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

/// Answers requests until it is dropped.
pub(super) struct Server {
    port: u16,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1. `answer` is called on a separate thread for each request.
    pub(super) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
        let port = listener.local_addr()?.port();
        let stopped = Arc::new(AtomicBool::new(false));
        let (flag, answer) = (Arc::clone(&stopped), Arc::new(answer));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if flag.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    // A client that disconnects early does not affect the server.
                    let _ = serve(&stream, &*answer);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(Self { port, stopped, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: &TcpStream, answer: &dyn Fn(&Request) -> Reply) -> Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let request = read_request(stream)?;
    let reply = answer(&request);
    let reason = if reply.status < 400 { "OK" } else { "Error" };
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", reply.status);
    head += &format!("content-type: {}\r\ncontent-length: {}\r\n", reply.content_type, reply.body.len());
    head += "cache-control: no-cache\r\nconnection: close\r\n\r\n";
    let mut out = stream;
    out.write_all(head.as_bytes())?;
    if request.method != "HEAD" {
        out.write_all(&reply.body)?;
    }
    out.flush()?;
    Ok(())
}

fn read_request(stream: &TcpStream) -> Result<Request> {
    let mut reader = BufReader::new(stream);
    let first = read_line(&mut reader)?;
    let mut words = first.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { bail!("not a request: {first:?}") };
    let (mut length, mut is_chunked, mut expects) = (0, false, false);
    for count in 0.. {
        ensure!(count < HEADERS_MAX, "too many headers");
        let line = read_line(&mut reader)?;
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().context("content-length")?,
            "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
            "expect" => expects = true,
            _ => {}
        }
    }
    if expects {
        let mut out = stream;
        out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let body = if is_chunked { read_chunks(&mut reader)? } else { read_exactly(&mut reader, length)? };
    Ok(Request { method: method.to_owned(), target: target.to_owned(), body })
}

fn read_line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    ensure!(line.ends_with(b"\n"), "the request ends in the middle of a line");
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

fn read_exactly(reader: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    ensure!(length <= BODY_BYTES_MAX, "the request is too large");
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).with_context(|| format!("not a chunk: {line:?}"))?;
        let chunk = read_exactly(reader, length)?;
        read_line(reader)?;
        if length == 0 {
            return Ok(body);
        }
        body.extend(chunk);
        ensure!(body.len() <= BODY_BYTES_MAX, "the request is too large");
    }
}
