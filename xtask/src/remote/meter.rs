//! A proxy in front of a server that counts requests and bytes of each client program.
//!
//! It passes bytes on as they are. The length of a request is that of its headers and of the body that they announce.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Result;

/// Counts since the last look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) requests: u64,
    /// Headers included.
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// The running proxy. It ends with the program.
pub(super) struct Proxy {
    pub(super) endpoint: String,
    counters: Arc<Counters>,
}

impl Proxy {
    /// Starts a proxy for the server at `127.0.0.1:port`.
    pub(super) fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let counters = Arc::new(Counters::default());
        let shared = Arc::clone(&counters);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || pass_on(client, port, &shared));
            }
        });
        Ok(Self { endpoint, counters })
    }

    /// Returns the counts, and starts over.
    pub(super) fn take(&self) -> Traffic {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Traffic {
            requests: take(&self.counters.requests),
            bytes_sent: take(&self.counters.sent),
            bytes_received: take(&self.counters.received),
        }
    }
}

/// Serves one connection.
fn pass_on(client: TcpStream, port: u16, counters: &Arc<Counters>) -> std::io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    let answering = Arc::clone(counters);
    thread::spawn(move || {
        copy(&mut answers, &mut back, |bytes| {
            answering.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        });
        let _ = back.shutdown(Shutdown::Both);
    });
    let mut framing = Framing::default();
    let (mut from, mut to) = (client, server);
    copy(&mut from, &mut to, |bytes| {
        counters.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        counters.requests.fetch_add(framing.feed(bytes), Ordering::Relaxed);
    });
    to.shutdown(Shutdown::Write)
}

fn copy(from: &mut TcpStream, to: &mut TcpStream, mut each: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 128 << 10];
    while let Ok(got) = from.read(&mut buffer) {
        // Counted before it is passed on, so that the counts are complete once the client has its answer.
        each(&buffer[..got]);
        if got == 0 || to.write_all(&buffer[..got]).is_err() {
            return;
        }
    }
}

/// Position in a stream of HTTP/1.1 requests.
#[derive(Default)]
struct Framing {
    headers: Vec<u8>,
    body_left: u64,
}

impl Framing {
    /// Takes the next bytes of the stream, and returns the number of requests whose headers end in them.
    fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let mut requests = 0;
        while !bytes.is_empty() {
            let skipped = usize::try_from(self.body_left).unwrap_or(usize::MAX).min(bytes.len());
            self.body_left -= skipped as u64;
            bytes = &bytes[skipped..];
            let Some((first, rest)) = bytes.split_first() else { break };
            self.headers.push(*first);
            bytes = rest;
            if self.headers.ends_with(b"\r\n\r\n") {
                requests += 1;
                self.body_left = body_bytes(&self.headers);
                self.headers.clear();
            }
        }
        requests
    }
}

/// Returns the length of the body. Clients that sign their requests announce it.
fn body_bytes(headers: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(headers).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    length.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: &[u8] = b"PUT /a HTTP/1.1\r\nContent-Length: 9\r\n\r\nx\r\n\r\nabcd\
          GET /a HTTP/1.1\r\nHost: h\r\n\r\nDELETE /a HTTP/1.1\r\ncontent-length:0\r\n\r\n";

    #[test]
    fn requests_are_counted_however_the_stream_is_cut() {
        for size in 1..=REQUESTS.len() {
            let mut framing = Framing::default();
            let counted: u64 = REQUESTS.chunks(size).map(|bytes| framing.feed(bytes)).sum();
            assert_eq!(counted, 3, "in pieces of {size}");
        }
    }

    #[test]
    fn the_proxy_counts_what_it_passes_on() -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let proxy = Proxy::start(listener.local_addr()?.port())?;
        let serving = thread::spawn(move || -> std::io::Result<Vec<u8>> {
            let (mut stream, _) = listener.accept()?;
            let mut got = vec![0; REQUESTS.len()];
            stream.read_exact(&mut got)?;
            stream.write_all(b"answer")?;
            Ok(got)
        });
        let mut client = TcpStream::connect(proxy.endpoint.trim_start_matches("http://"))?;
        client.write_all(REQUESTS)?;
        let mut answer = [0; 6];
        client.read_exact(&mut answer)?;
        assert_eq!(serving.join().expect("no panic")?, REQUESTS);
        let expected = Traffic { requests: 3, bytes_sent: REQUESTS.len() as u64, bytes_received: 6 };
        assert_eq!((&answer, proxy.take(), proxy.take()), (b"answer", expected, Traffic::default()));
        Ok(())
    }
}
