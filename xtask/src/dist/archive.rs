//! Archives whose bytes depend on their files alone: `tar` in the format `ustar`, `gzip` without name and time, and the
//! `ar` of a Debian package.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::{Result, ensure};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc, GzBuilder};

use super::build::Program;

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

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the entries of programs in a directory.
pub(super) fn programs_in(dir: &str, programs: &[Program]) -> Vec<Entry> {
    programs.iter().map(|program| Entry::program(format!("{dir}/{}", program.name), program.bytes.clone())).collect()
}

/// Returns a compressed archive of the files, sorted by path, with the directories above them. All belong to root.
pub(super) fn tar_gz(entries: &[Entry], secs: u64) -> Result<Vec<u8>> {
    tar_below("./", entries, secs)
}

/// Like [`tar_gz`], with paths that begin with the name of a directory, as npm wants them.
pub(super) fn tgz(entries: &[Entry], secs: u64) -> Result<Vec<u8>> {
    tar_below("", entries, secs)
}

fn tar_below(prefix: &str, entries: &[Entry], secs: u64) -> Result<Vec<u8>> {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut gz = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    let mut dirs = BTreeSet::new();
    for entry in sorted {
        for (at, _) in entry.path.match_indices('/') {
            let dir = &entry.path[..=at];
            if dirs.insert(dir) {
                gz.write_all(&header(prefix, dir, 0, 0o755, b'5', secs)?)?;
            }
        }
        gz.write_all(&header(prefix, &entry.path, entry.bytes.len(), entry.mode, b'0', secs)?)?;
        gz.write_all(&entry.bytes)?;
        gz.write_all(&vec![0; entry.bytes.len().next_multiple_of(BLOCK_BYTES) - entry.bytes.len()])?;
    }
    gz.write_all(&[0; 2 * BLOCK_BYTES])?;
    Ok(gz.finish()?)
}

/// Returns the header of an entry, as POSIX describes `ustar`.
fn header(prefix: &str, path: &str, size: usize, mode: u32, kind: u8, secs: u64) -> Result<[u8; BLOCK_BYTES]> {
    let path = format!("{prefix}{path}");
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

/// Returns a zip archive of the files, in their order. Times are in steps of two seconds, and not before 1980.
pub(super) fn zip(entries: &[Entry], secs: u64) -> Result<Vec<u8>> {
    let (date, time) = dos_time(secs);
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::best());
        deflate.write_all(&entry.bytes)?;
        let packed = deflate.finish()?;
        let mut crc = Crc::new();
        crc.update(&entry.bytes);
        let offset = u32::try_from(archive.len())?;
        let mut common = Vec::new();
        // Version 2.0, names in UTF-8, deflated.
        [20_u16, 1 << 11, 8, time, date].iter().for_each(|field| common.extend(field.to_le_bytes()));
        common.extend(crc.sum().to_le_bytes());
        common.extend(u32::try_from(packed.len())?.to_le_bytes());
        common.extend(u32::try_from(entry.bytes.len())?.to_le_bytes());
        common.extend(u16::try_from(entry.path.len())?.to_le_bytes());
        common.extend([0; 2]);
        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(entry.path.as_bytes());
        archive.extend(packed);
        directory.extend(b"PK\x01\x02");
        // Made on Unix: the upper half of the attributes is the mode of a regular file.
        directory.extend([20, 3]);
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend(((0o100_000 | entry.mode) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.path.as_bytes());
    }
    let (count, start) = (u16::try_from(entries.len())?, u32::try_from(archive.len())?);
    let size = u32::try_from(directory.len())?;
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count.to_le_bytes());
    archive.extend(count.to_le_bytes());
    archive.extend(size.to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0; 2]);
    Ok(archive)
}

/// Returns the date and the time of a moment in the format of zip archives.
fn dos_time(secs: u64) -> (u16, u16) {
    let (days, rest) = (secs / 86_400, secs % 86_400);
    // Civil date from days, by Howard Hinnant.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let Some(since) = year.checked_sub(1980) else { return (1 << 5 | 1, 0) };
    let date = (since << 9) | (month << 5) | day;
    let time = ((rest / 3600) << 11) | ((rest % 3600 / 60) << 5) | (rest % 60 / 2);
    (u16::try_from(date).unwrap_or(u16::MAX), u16::try_from(time).unwrap_or(0))
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
    fn python_reads_the_zip_archive_with_times_and_modes() {
        if !testkit::has_program("python3") {
            return;
        }
        let temp = testkit::Sandbox::new();
        let file = temp.root().join("a.zip");
        // 2026-11-18 03:04:06 UTC.
        fs::write(&file, zip(&entries(), 1_794_970_000 + 1046).expect("an archive")).expect("a file");
        let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
                      [print(i.filename, i.date_time, oct(i.external_attr >> 16), len(z.read(i))) for i in z.infolist()]";
        let list = listed("python3", &["-c", script], &file);
        let time = as_python_prints(1_794_971_046);
        assert!(list.contains(&format!("usr/bin/piton {time} 0o100755 1000")), "{list}");
        assert!(list.contains(&format!("usr/share/doc/b {time} 0o100644 4")), "{list}");
        assert_eq!(dos_time(0), (1 << 5 | 1, 0), "the first day that a zip archive knows");
    }

    /// Returns a time as Python prints it, by `date`.
    fn as_python_prints(secs: u64) -> String {
        let output =
            Command::new("date").args(["-u", "+(%Y, %-m, %-d, %-H, %-M, %-S)", "-d", &format!("@{secs}")]).output();
        String::from_utf8(output.expect("date runs").stdout).expect("text").trim().to_owned()
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
