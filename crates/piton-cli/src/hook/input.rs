//! Reads the agent's event from stdin, with a limit on size and time.

use std::io::{self, IsTerminal as _, Read};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of bytes kept. A longer event is an agent that writes a large file; the fields that matter are at its
/// beginning.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Size of the first read: most events fit into it. Longer ones are read in pieces of the size of a pipe.
const PIECE_BYTES_FIRST: usize = 4 << 10;
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Timeout for the end of the input. An agent has the event ready and writes it at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the bytes on stdin, or nothing if stdin is a terminal. Returns what has arrived once the timeout is over.
pub(super) fn read() -> Vec<u8> {
    if io::stdin().is_terminal() {
        return Vec::new();
    }
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (done, is_done) = mpsc::channel::<()>();
    let keeps = Arc::clone(&kept);
    let reader = move || {
        keep(&mut io::stdin().lock(), &keeps);
        drop(done);
    };
    match thread::Builder::new().spawn(reader) {
        Ok(_) => {
            // Both results mean the end: of the input, or of the timeout.
            let _ = is_done.recv_timeout(PATIENCE);
        }
        Err(_) => keep(&mut io::stdin().lock(), &kept),
    }
    std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads to the end and keeps the beginning. An agent that cannot write all of its input would report a failure.
fn keep(from: &mut impl Read, kept: &Mutex<Vec<u8>>) {
    let mut piece = vec![0; PIECE_BYTES_FIRST];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEPT_BYTES_MAX - kept.len();
                kept.extend_from_slice(&piece[..read.min(room)]);
                drop(kept);
                if read == piece.len() {
                    piece.resize(PIECE_BYTES_MAX, 0);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_kept_and_the_rest_is_read() {
        let mut long = io::repeat(b'x').take(KEPT_BYTES_MAX as u64 + 5_000_000);
        let kept = Mutex::new(Vec::new());
        keep(&mut long, &kept);
        assert_eq!(kept.lock().expect("nobody else has it").len(), KEPT_BYTES_MAX);
        assert_eq!(long.limit(), 0);
    }
}
