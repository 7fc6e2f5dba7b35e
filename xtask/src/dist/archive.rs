//! Archives whose bytes depend on their files alone: `tar` in the format `ustar`, `gzip` without name and time, and the
//! `ar` of a Debian package.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::{Result, ensure};
use flate2::{Compression, GzBuilder};

const BLOCK_BYTES: usize = 512;

/// File in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

impl Entry {
    pub(super) fn file(path: String, bytes: Vec<u8>) -> Self {
        Self { path, bytes, mode: 0o644 }
    }

    pub(super) fn program(path: String, bytes: Vec<u8>) -> Self {
        Self { path, bytes, mode: 0o755 }
    }
}

/// Returns a compressed archive of the files, sorted by path, with the directories above them. All belong to root.
pub(super) fn tar_gz(entries: &[Entry], secs: u64) -> Result<Vec<u8>> {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut gz = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    let mut dirs = BTreeSet::new();
    for entry in sorted {
        for (at, _) in entry.path.match_indices('/') {
            let dir = &entry.path[..=at];
            if dirs.insert(dir) {
                gz.write_all(&header(dir, 0, 0o755, b'5', secs)?)?;
            }
        }
        gz.write_all(&header(&entry.path, entry.bytes.len(), entry.mode, b'0', secs)?)?;
        gz.write_all(&entry.bytes)?;
        gz.write_all(&vec![0; entry.bytes.len().next_multiple_of(BLOCK_BYTES) - entry.bytes.len()])?;
    }
    gz.write_all(&[0; 2 * BLOCK_BYTES])?;
    Ok(gz.finish()?)
}

/// Returns the header of an entry, as POSIX describes `ustar`.
fn header(path: &str, size: usize, mode: u32, kind: u8, secs: u64) -> Result<[u8; BLOCK_BYTES]> {
    let path = format!("./{path}");
    ensure!(path.len() <= 100, "{path} is too long for an archive");
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{secs:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

/// Returns a Debian package with these files.
pub(super) fn deb(control: &str, entries: &[Entry], secs: u64) -> Result<Vec<u8>> {
    let control = tar_gz(&[Entry::file("control".to_owned(), control.as_bytes().to_vec())], secs)?;
    let data = tar_gz(entries, secs)?;
    let mut package = b"!<arch>\n".to_vec();
    for (name, bytes) in [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control), ("data.tar.gz", &data)] {
        writeln!(package, "{name:<16}{secs:<12}{:<6}{:<6}{:<8}{:<10}`", 0, 0, "100644", bytes.len())?;
        package.extend_from_slice(bytes);
        if !bytes.len().is_multiple_of(2) {
            package.push(b'\n');
        }
    }
    Ok(package)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn entries() -> Vec<Entry> {
        let program = Entry::program("usr/bin/piton".to_owned(), vec![7; 1000]);
        vec![Entry::file("usr/share/doc/b".to_owned(), b"text".to_vec()), program]
    }

    fn listed(program: &str, arguments: &[&str], file: &std::path::Path) -> String {
        let output = Command::new(program).args(arguments).arg(file).env("TZ", "UTC").output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn the_same_files_in_any_order_give_the_same_archive_which_tar_reads() {
        let archive = tar_gz(&entries(), 86_400).expect("an archive");
        let reversed: Vec<_> = entries().into_iter().rev().collect();
        assert_eq!(archive, tar_gz(&reversed, 86_400).expect("an archive"));
        let temp = testkit::Sandbox::new();
        let file = temp.root().join("a.tar.gz");
        fs::write(&file, archive).expect("a file");
        let list = listed("tar", &["-tvzf"], &file);
        assert!(list.contains("-rwxr-xr-x root/root      1000 1970-01-02 00:00 ./usr/bin/piton"), "{list}");
        assert!(list.contains("drwxr-xr-x root/root         0 1970-01-02 00:00 ./usr/share/doc/"), "{list}");
    }

    #[test]
    fn dpkg_reads_the_package() {
        let control = "Package: piton\nVersion: 1.2\nArchitecture: amd64\nMaintainer: a <a@b>\nDescription: x\n";
        let temp = testkit::Sandbox::new();
        let file = temp.root().join("a.deb");
        fs::write(&file, deb(control, &entries(), 86_400).expect("a package")).expect("a file");
        if !testkit::has_program("dpkg-deb") {
            return;
        }
        assert_eq!(listed("dpkg-deb", &["-f"], &file), control);
        let list = listed("dpkg-deb", &["-c"], &file);
        assert!(list.contains("./usr/bin/piton") && list.contains("./usr/share/doc/b"), "{list}");
    }
}
