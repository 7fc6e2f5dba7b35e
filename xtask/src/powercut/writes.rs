//! The log of writes, and the disks that a power cut can leave behind.
//!
//! The format is that of the kernel's dm-log-writes, written by QEMU's `blklogwrites`: a header of one sector, then for
//! each request a sector that describes it, and its bytes. Everything written before a completed flush is on the disk.
//! Each later request may or may not be there, and of a long one any part: a disk only guarantees that one block of 4
//! KiB is written completely or not at all.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::SeekFrom as Seek;
use testkit::Dice;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const SECTOR_BYTES: usize = 512;
const SECTOR: u64 = SECTOR_BYTES as u64;
/// Unit that a disk writes atomically.
const BLOCK_BYTES: usize = 4096;
const BLOCK: u64 = BLOCK_BYTES as u64;

const FLUSH: u64 = 1;
const FORCED: u64 = 2;
const DISCARD: u64 = 4;

/// One request to the disk.
pub(super) struct Request {
    /// Position of its bytes on the disk (`disk_at`) and in the log (`log_at`).
    disk_at: u64,
    log_at: u64,
    bytes: u64,
    /// Length of the log including this request.
    pub(super) log_end: u64,
    flags: u64,
}

impl Request {
    fn is_flush(&self) -> bool {
        self.flags & FLUSH != 0
    }

    fn is_write(&self) -> bool {
        self.bytes > 0 && self.flags & DISCARD == 0
    }
}

/// All requests to a disk, in order.
pub(super) struct WriteLog {
    file: File,
    pub(super) requests: Vec<Request>,
}

impl WriteLog {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut file = File::open(path)?;
        let total = file.metadata()?.len();
        let mut header = [0; SECTOR_BYTES];
        file.read_exact(&mut header).context("the log of writes is empty")?;
        ensure!(number(&header, 0) == MAGIC && number(&header, 8) == 1, "the log of writes has an unknown format");
        let mut requests = Vec::new();
        let mut at = SECTOR;
        while at + SECTOR <= total {
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut header[..32])?;
            let [disk_at, bytes] = [0, 8].map(|place| number(&header, place) * SECTOR);
            let flags = number(&header, 16);
            let stored = if flags & DISCARD == 0 { bytes } else { 0 };
            let log_end = at + SECTOR + stored;
            ensure!(log_end <= total, "the log of writes ends in the middle of a request");
            requests.push(Request { disk_at, log_at: at + SECTOR, bytes, log_end, flags });
            at = log_end;
        }
        Ok(Self { file, requests })
    }

    /// Writes a request to a disk, without the blocks for which `is_lost` returns true.
    fn apply(&self, request: &Request, disk: &File, mut is_lost: impl FnMut() -> bool) -> Result<()> {
        let mut done = 0;
        while done < request.bytes {
            // Up to the next block boundary on the disk.
            let size = (BLOCK - (request.disk_at + done) % BLOCK).min(request.bytes - done);
            if !is_lost() {
                let mut bytes = vec![0; usize::try_from(size)?];
                self.file.read_exact_at(&mut bytes, request.log_at + done)?;
                disk.write_all_at(&bytes, request.disk_at + done)?;
            }
            done += size;
        }
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a sector is longer"))
}

/// Reads a log once, from its beginning, and creates disks that a cut can leave.
pub(super) struct Replay<'a> {
    log: &'a WriteLog,
    /// The disk with everything that is certainly written so far.
    certain: File,
    certain_requests: usize,
}

impl<'a> Replay<'a> {
    /// Creates a replay. `disk` is the disk as it was when the log began.
    pub(super) fn new(log: &'a WriteLog, disk: &Path) -> Result<Self> {
        let certain = File::options().read(true).write(true).open(disk)?;
        Ok(Self { log, certain, certain_requests: 0 })
    }

    /// Creates the disk that is left if the power fails after this many requests, which must not be fewer than in the
    /// last call.
    pub(super) fn cut(&mut self, requests: usize, dice: &mut Dice, to: &Path) -> Result<()> {
        let seen = &self.log.requests[..requests];
        let flushed = seen.iter().rposition(Request::is_flush).map_or(0, |at| at + 1);
        while self.certain_requests < flushed {
            let request = &seen[self.certain_requests];
            if request.is_write() {
                self.log.apply(request, &self.certain, || false)?;
            }
            self.certain_requests += 1;
        }
        let disk = File::options().read(true).write(true).create(true).truncate(true).open(to)?;
        copy_sparse(&self.certain, &disk)?;
        // In percent. 0 is the plain prefix; 100 is a disk with a large cache.
        let lost_percent = [0, 5, 25, 50, 75, 95, 100][dice.roll(7)];
        for request in seen[flushed..].iter().filter(|request| request.is_write()) {
            if request.flags & FORCED != 0 {
                self.log.apply(request, &disk, || false)?;
                continue;
            }
            let is_torn = dice.roll(4) == 0;
            let whole_is_lost = dice.roll(100) < lost_percent;
            let mut is_lost = || if is_torn { dice.roll(100) < lost_percent } else { whole_is_lost };
            self.log.apply(request, &disk, &mut is_lost)?;
        }
        Ok(())
    }
}

/// Copies the data of a file and keeps its holes: most of a disk is empty.
pub(super) fn copy_sparse(from: &File, to: &File) -> Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        let Ok(start) = rustix::fs::seek(from, Seek::Data(at)) else { break };
        let end = rustix::fs::seek(from, Seek::Hole(start))?;
        at = start;
        while at < end {
            let want = usize::try_from(end - at)?.min(buffer.len());
            from.read_exact_at(&mut buffer[..want], at)?;
            to.write_all_at(&buffer[..want], at)?;
            at += want as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a log of requests: each the number of a block and the byte that fills it, or a flush.
    fn log_of(dir: &Path, requests: &[Option<(u64, u8)>]) -> WriteLog {
        let sector = |numbers: &[u64]| {
            let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            bytes.resize(SECTOR_BYTES, 0);
            bytes
        };
        let mut log = sector(&[MAGIC, 1]);
        for request in requests {
            match request {
                Some((block, byte)) => {
                    log.extend(sector(&[block * 8, 8, 0, 0]));
                    log.extend(vec![*byte; BLOCK_BYTES]);
                }
                None => log.extend(sector(&[0, 0, FLUSH, 0])),
            }
        }
        std::fs::write(dir.join("log"), log).expect("a log");
        WriteLog::read(&dir.join("log")).expect("a log")
    }

    #[test]
    fn what_was_flushed_is_there_and_what_was_not_may_be() {
        let dir = std::env::temp_dir().join(format!("xtask-writes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let log = log_of(&dir, &[Some((0, 1)), Some((1, 1)), None, Some((1, 2)), Some((2, 2)), None, Some((3, 3))]);
        let mut dice = Dice::new(1);
        let mut found = std::collections::BTreeSet::new();
        for _ in 0..200 {
            File::create(dir.join("disk")).and_then(|disk| disk.set_len(4 * BLOCK)).expect("a disk");
            let mut replay = Replay::new(&log, &dir.join("disk")).expect("a replay");
            replay.cut(5, &mut dice, &dir.join("state")).expect("a state");
            let state = std::fs::read(dir.join("state")).expect("a state");
            found.insert([0, 1, 2, 3].map(|block: usize| state[block * BLOCK_BYTES]));
            replay.cut(7, &mut dice, &dir.join("state")).expect("a later state");
            let state = std::fs::read(dir.join("state")).expect("a state");
            assert_eq!([0, 1, 2].map(|block: usize| state[block * BLOCK_BYTES]), [1, 2, 2]);
        }
        std::fs::remove_dir_all(&dir).expect("it is ours");
        let possible = [[1, 1, 0, 0], [1, 1, 2, 0], [1, 2, 0, 0], [1, 2, 2, 0]];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), possible);
    }
}
