//! Index of the user's own git: read to find out which files it tracks, never written.

use super::cache::codec::{EXTENDED_FLAG, HEADER_BYTES, STAT_BYTES, extension, read_header};
use crate::id::{ID_BYTES, ObjectId, content_id, hex};

/// Length of an id in SHA-256 repositories.
const LONG_ID_BYTES: usize = 32;
/// Mode of the commit of a submodule.
const COMMIT_MODE: [u8; 4] = [0, 0, 0xe0, 0];
/// Place of the mode in an entry.
const MODE_AT: usize = 24;

/// Returns the paths in an index of the user's own git, of any version and hash. Stops at the first invalid data and
/// returns the paths before it: they are only used as exceptions.
///
/// Also returns the checksum of the shared index that holds the rest, if there is one. The file does not name its hash:
/// only with the right one does parsing end at the right place.
///
/// All paths together are limited to `paths_bytes_max` bytes: with prefix compression, a small file can expand without
/// limit.
pub(super) fn read_paths(bytes: &[u8], paths_bytes_max: usize) -> (Vec<Box<[u8]>>, Option<String>) {
    let read = |id_bytes| {
        let mut paths = Vec::new();
        let rest = read_header(bytes).and_then(|(count, shortened)| {
            read_entries(bytes, count, shortened, id_bytes, paths_bytes_max, &mut paths)
        });
        let is_whole = rest.is_some_and(|rest| after_extensions(rest, id_bytes) == Some(id_bytes));
        (is_whole, (paths, rest.and_then(|rest| shared_index(rest, id_bytes))))
    };
    let (is_whole, found) = read(ID_BYTES);
    if is_whole {
        return found;
    }
    let (is_whole, other) = read(LONG_ID_BYTES);
    if is_whole { other } else { found }
}

/// Returns a hash of what is staged: mode, id, stage and path of every entry, without the stat data, which every `git
/// status` may rewrite. Returns `None` if the index is not valid, or shares entries with another file.
pub(crate) fn staged_id(bytes: &[u8]) -> Option<ObjectId> {
    [ID_BYTES, LONG_ID_BYTES].into_iter().find_map(|id_bytes| {
        let (count, shortened) = read_header(bytes)?;
        let (mut paths, mut staged) = (Vec::new(), Vec::new());
        let rest = read_entries_with(bytes, count, shortened, id_bytes, bytes.len(), &mut paths, &mut |entry| {
            staged.extend_from_slice(entry);
        })?;
        let is_whole = after_extensions(rest, id_bytes) == Some(id_bytes) && shared_index(rest, id_bytes).is_none();
        paths.iter().for_each(|path| staged.extend([&path[..], b"\0"].concat()));
        is_whole.then(|| content_id(&staged))
    })
}

/// Returns the ids of the objects that are staged, in hexadecimal digits; none of an index that is not valid. Commits of
/// submodules are in other repositories.
pub(crate) fn staged_objects(bytes: &[u8]) -> Vec<String> {
    let found = [ID_BYTES, LONG_ID_BYTES].into_iter().find_map(|id_bytes| {
        let (count, shortened) = read_header(bytes)?;
        let (mut paths, mut ids, mut is_commit) = (Vec::new(), Vec::new(), false);
        let rest = read_entries_with(bytes, count, shortened, id_bytes, bytes.len(), &mut paths, &mut |part| {
            // The mode comes before the id.
            match part.len() {
                4 => is_commit = part == COMMIT_MODE,
                _ => ids.extend((!is_commit).then(|| hex(&part[..id_bytes]))),
            }
        })?;
        (after_extensions(rest, id_bytes) == Some(id_bytes)).then_some(ids)
    });
    found.unwrap_or_default()
}

/// Returns the number of bytes after the extensions.
fn after_extensions(mut rest: &[u8], id_bytes: usize) -> Option<usize> {
    while rest.len() > id_bytes {
        let (size, after) = rest.get(4..)?.split_first_chunk::<4>()?;
        rest = after.get(usize::try_from(u32::from_be_bytes(*size)).ok()?..)?;
    }
    Some(rest.len())
}

fn read_entries<'a>(
    bytes: &'a [u8],
    count: usize,
    shortened: bool,
    id_bytes: usize,
    bytes_left: usize,
    paths: &mut Vec<Box<[u8]>>,
) -> Option<&'a [u8]> {
    read_entries_with(bytes, count, shortened, id_bytes, bytes_left, paths, &mut |_| {})
}

/// Like [`read_entries`], and passes mode, id and flags of each entry to `each`.
fn read_entries_with<'a>(
    bytes: &'a [u8],
    count: usize,
    shortened: bool,
    id_bytes: usize,
    mut bytes_left: usize,
    paths: &mut Vec<Box<[u8]>>,
    each: &mut dyn FnMut(&[u8]),
) -> Option<&'a [u8]> {
    let mut rest = &bytes[HEADER_BYTES..];
    for _ in 0..count {
        let start = rest;
        let (flags, mut after) = rest.get(STAT_BYTES + id_bytes..)?.split_first_chunk::<2>()?;
        if u16::from_be_bytes(*flags) & EXTENDED_FLAG != 0 {
            after = after.get(2..)?;
        }
        each(start.get(MODE_AT..MODE_AT + 4)?);
        each(start.get(STAT_BYTES..STAT_BYTES + id_bytes + 2)?);
        let mut path = Vec::new();
        if shortened {
            let cut;
            (cut, after) = read_offset(after)?;
            let before: &[u8] = paths.last().map_or(b"", |path| path);
            path.extend_from_slice(before.get(..before.len().checked_sub(cut)?)?);
        }
        let end = after.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(&after[..end]);
        rest = if shortened {
            &after[end + 1..]
        } else {
            let before_name = start.len() - after.len();
            start.get((before_name + end) / 8 * 8 + 8..)?
        };
        bytes_left = bytes_left.checked_sub(path.len())?;
        paths.push(path.into());
    }
    Some(rest)
}

/// Parses a number in git's variable-length encoding, which precedes each name in version 4.
fn read_offset(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let mut value = usize::from(first & 0x7f);
    let mut more = first & 0x80 != 0;
    while more {
        let (next, after) = rest.split_first()?;
        value = value.checked_add(1)?.checked_mul(128)? | usize::from(next & 0x7f);
        more = next & 0x80 != 0;
        rest = after;
    }
    Some((value, rest))
}

/// Returns the id in the extension `link`: a split index keeps most entries in a file of that name.
fn shared_index(rest: &[u8], id_bytes: usize) -> Option<String> {
    Some(hex(extension(rest, b"link")?.get(..id_bytes)?))
}

#[cfg(test)]
mod tests {
    use super::super::cache::codec::SIGNATURE;
    use super::*;

    const FIXED_BYTES: usize = STAT_BYTES + ID_BYTES + 2;

    #[test]
    fn shortened_names_take_no_more_memory_than_they_may() {
        // One name of a thousand bytes, and a thousand more entries that repeat it and add nothing.
        let entry = |cut: u8, name: &[u8]| [&[0; FIXED_BYTES][..], &[cut], name, &[0]].concat();
        let count = 1001_u32;
        let mut index = [&SIGNATURE[..], &4_u32.to_be_bytes(), &count.to_be_bytes()].concat();
        index.extend(entry(0, &[b'x'; 1000]));
        (1..count).for_each(|_| index.extend(entry(0, b"")));
        index.extend([0; ID_BYTES]);
        let bytes = |max| read_paths(&index, max).0.iter().map(|path| path.len()).sum::<usize>();
        assert_eq!(bytes(usize::MAX), 1_001_000);
        assert_eq!(bytes(50_999), 50_000);
    }
}
