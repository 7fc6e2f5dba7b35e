//! A checkpoint as a tar archive, in the format of GNU tar: names are bytes of any length.

use std::io::{self, Write};

use super::{Entries, write_blob};
use crate::error::{Error, Result};
use crate::id::ObjectKind;
use crate::lookup;
use crate::progress::Progress;
use crate::project::Project;
use crate::store::{Checkpoint, Store};

/// Size of a block, to which everything in an archive is padded.
const BLOCK_BYTES: usize = 512;
/// Room for a name in a header. A longer one has an entry of its own in front.
const NAME_BYTES: usize = 100;

/// Writes the files of a checkpoint as a tar archive, with permission bits, links and empty directories. All of them
/// have the time of the checkpoint, and belong to root. Returns the checkpoint.
///
/// Fails like [`crate::History::find`], with `Damaged` if contents are missing or corrupt, and with `Io` if `out` cannot
/// be written. The archive is incomplete then, and lacks the blocks of zeros at its end.
pub fn export_tar(
    store: &Store,
    project: &Project,
    name: &str,
    out: &mut dyn Write,
    progress: &Progress,
) -> Result<Checkpoint> {
    let held = store.locks.share_until(Some(progress))?;
    let objects = store.objects.open(&held)?;
    let checkpoint = lookup::find(&store.histories.of(&objects, project.id())?, name)?.clone();
    let Entries { dirs, files } = Entries::of(&checkpoint, &objects)?;
    let failed = |error| Error::io("write", "the archive", error);
    let mut archive = TarArchive { out, secs: checkpoint.time.secs.max(0).cast_unsigned() };
    for (path, mode) in &dirs {
        let path = [path.as_slice(), b"/"].concat();
        archive.begin(&Header { path: &path, kind: b'5', mode: *mode, size: 0, target: b"" }).map_err(failed)?;
    }
    for file in &files {
        super::check_cancelled(progress)?;
        let Some(mode) = file.mode else {
            let target = objects.read(file.id, ObjectKind::Blob)?;
            let header = Header { path: &file.path, kind: b'2', mode: 0o777, size: 0, target: &target };
            archive.begin(&header).map_err(failed)?;
            continue;
        };
        let size = objects.blob_size(file.id)?;
        archive.begin(&Header { path: &file.path, kind: b'0', mode, size, target: b"" }).map_err(failed)?;
        write_blob(&objects, file.id, archive.out)?;
        archive.pad(size).map_err(failed)?;
    }
    archive.out.write_all(&[0; 2 * BLOCK_BYTES]).and_then(|()| archive.out.flush()).map_err(failed)?;
    Ok(checkpoint)
}

struct TarArchive<'a> {
    out: &'a mut dyn Write,
    /// Modification time of all entries.
    secs: u64,
}

struct Header<'a> {
    path: &'a [u8],
    /// Type flag: `0` file, `2` link, `5` directory, `L` long name, `K` long target.
    kind: u8,
    mode: u16,
    size: u64,
    target: &'a [u8],
}

impl TarArchive<'_> {
    /// Writes a header, and before it the names that do not fit into it.
    fn begin(&mut self, header: &Header<'_>) -> io::Result<()> {
        for (kind, name) in [(b'K', header.target), (b'L', header.path)] {
            if name.len() > NAME_BYTES {
                let size = name.len() as u64 + 1;
                self.block(&Header { path: b"././@LongLink", kind, mode: 0, size, target: b"" })?;
                self.out.write_all(name)?;
                self.out.write_all(&[0])?;
                self.pad(size)?;
            }
        }
        self.block(header)
    }

    fn block(&mut self, header: &Header<'_>) -> io::Result<()> {
        let mut block = [0; BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &header.path[..header.path.len().min(NAME_BYTES)]);
        put(100, &number::<8>(u64::from(header.mode)));
        put(108, &number::<8>(0));
        put(116, &number::<8>(0));
        put(124, &number::<12>(header.size));
        put(136, &number::<12>(self.secs));
        // The checksum counts its own field as spaces.
        put(148, b"        ");
        put(156, &[header.kind]);
        put(157, &header.target[..header.target.len().min(NAME_BYTES)]);
        put(257, b"ustar  \0");
        put(265, b"root");
        put(297, b"root");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.out.write_all(&block)
    }

    /// Fills the last block of contents.
    fn pad(&mut self, size: u64) -> io::Result<()> {
        let rest = usize::try_from(size % BLOCK_BYTES as u64).expect("less than a block");
        if rest == 0 { Ok(()) } else { self.out.write_all(&[0; BLOCK_BYTES][rest..]) }
    }
}

/// Returns a number as octal digits and a NUL or, if it has too many, in base 256 with the first bit set.
fn number<const BYTES: usize>(value: u64) -> [u8; BYTES] {
    let mut field = [0; BYTES];
    let digits = format!("{value:0width$o}", width = BYTES - 1);
    if digits.len() < BYTES {
        field[..BYTES - 1].copy_from_slice(digits.as_bytes());
        return field;
    }
    field[BYTES - 8..].copy_from_slice(&value.to_be_bytes());
    field[0] |= 0x80;
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_of_eight_gibibytes_or_more_is_in_base_256() {
        assert_eq!(&number::<12>((8 << 30) - 1), b"77777777777\0");
        assert_eq!(number::<12>(8 << 30), [0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    }
}
