//! Loose objects, as stock git and Hermes write them: listing, identifying and streaming, corrupt or not.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use super::decode::Why;
use crate::error::Result;
use crate::fsx;
use crate::id::{IdHasher, ObjectId, ObjectKind};

/// Returns the ids of all loose objects, sorted. Only stock git and Hermes write those.
pub(super) fn ids(objects: &Path) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    for first in fsx::names_in(objects)?.into_iter().filter(|name| name.len() == 2) {
        let dir = objects.join(&first);
        for rest in fsx::names_in(&dir)? {
            let name = format!("{}{}", first.to_string_lossy(), rest.to_string_lossy());
            found.extend(ObjectId::from_hex(name.as_bytes()));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The fault of a loose object.
pub(super) enum LooseFault {
    /// The object is corrupt.
    Wrong(Why),
    /// An I/O error: the object may be intact.
    Unread(std::io::Error),
}

impl From<std::io::Error> for LooseFault {
    fn from(error: std::io::Error) -> Self {
        // Errors of the decompressor have no OS error code.
        match error.raw_os_error() {
            Some(_) if !crate::sys::is_gone(&error) => Self::Unread(error),
            _ => Self::Wrong(error.to_string().into()),
        }
    }
}

impl From<&'static str> for LooseFault {
    fn from(why: &'static str) -> Self {
        Self::Wrong(why.into())
    }
}

/// Returns the id of a loose object, computed from its contents.
pub(super) fn identify(path: &Path) -> std::result::Result<ObjectId, LooseFault> {
    let mut hasher = None;
    read(path, u64::MAX, &mut |kind, size, piece| {
        hasher.get_or_insert_with(|| IdHasher::new(kind, size)).update(piece);
    })?;
    let id = hasher.ok_or("it is empty")?.finish();
    id.map_err(|collision| LooseFault::Wrong(collision.to_string().into()))
}

/// Streams a loose object to `each`, which is called at least once, until it returns false. Fails with the reason if
/// the object is corrupt or was not read to its end.
pub(super) fn stream(
    path: &Path,
    each: &mut dyn FnMut(ObjectKind, u64, &[u8]) -> bool,
) -> std::result::Result<(), String> {
    match read_while(path, u64::MAX, each) {
        Ok(_) => Ok(()),
        Err(LooseFault::Wrong(why)) => Err(why.into_owned()),
        Err(LooseFault::Unread(error)) => Err(crate::error::plain_io(&error)),
    }
}

/// Streams a loose object to `each`, with its kind and its size. `each` is called at least once.
pub(super) fn read(
    path: &Path,
    bytes_max: u64,
    each: &mut dyn FnMut(ObjectKind, u64, &[u8]),
) -> std::result::Result<ObjectKind, LooseFault> {
    read_while(path, bytes_max, &mut |kind, size, bytes| {
        each(kind, size, bytes);
        true
    })
}

type Inflating = flate2::bufread::ZlibDecoder<BufReader<File>>;

/// Opens a loose object. Returns its kind, its size and a reader of its contents.
pub(super) fn open(path: &Path) -> std::result::Result<(ObjectKind, u64, Inflating), String> {
    begin(path).map(|(_, kind, size, inflate)| (kind, size, inflate)).map_err(|fault| match fault {
        LooseFault::Wrong(why) => why.into_owned(),
        LooseFault::Unread(error) => crate::error::plain_io(&error),
    })
}

/// Opens a loose object and parses its header. Returns the size of the file and the kind, size and reader of the
/// object.
fn begin(path: &Path) -> std::result::Result<(u64, ObjectKind, u64, Inflating), LooseFault> {
    let file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
    let mut inflate = flate2::bufread::ZlibDecoder::new(BufReader::new(file));
    let mut header = Vec::new();
    while header.last() != Some(&0) {
        let mut byte = [0];
        inflate.read_exact(&mut byte)?;
        header.push(byte[0]);
        if header.len() > 32 {
            return Err("it has no header".into());
        }
    }
    let header = std::str::from_utf8(&header[..header.len() - 1]).map_err(|_| "it has no header")?;
    let (kind, size) = header.split_once(' ').ok_or("it has no header")?;
    let kind = ObjectKind::parse(kind).ok_or("it is of a kind that git does not have")?;
    let size: u64 = size.parse().map_err(|_| "it has no size")?;
    Ok((file_bytes, kind, size, inflate))
}

fn read_while(
    path: &Path,
    bytes_max: u64,
    each: &mut dyn FnMut(ObjectKind, u64, &[u8]) -> bool,
) -> std::result::Result<ObjectKind, LooseFault> {
    let (file_bytes, kind, size, mut inflate) = begin(path)?;
    each(kind, size, &[]);
    if size > bytes_max {
        return Err("it is larger than any of its kind".into());
    }
    let mut buffer = vec![0; 64 << 10];
    let mut read = 0;
    loop {
        let got = inflate.read(&mut buffer)?;
        read += got as u64;
        if read > size {
            return Err("it is longer than it says".into());
        }
        if got == 0 {
            break;
        }
        if !each(kind, size, &buffer[..got]) {
            return Err("reading it was cancelled".into());
        }
    }
    match () {
        () if read < size => Err("it is shorter than it says".into()),
        () if inflate.total_in() != file_bytes => Err("it has data after its end".into()),
        () => Ok(kind),
    }
}
