//! Report about the local files of a checkpoint.

use crate::json::{AtPath, JsonPath};

/// Local files that were saved with a checkpoint: small files out of its scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalReport {
    /// Number of files that were saved.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Files that were not saved because they are too large; not all if there are many.
    pub too_large: Vec<Vec<u8>>,
    /// Files that could not be read.
    pub unread: Vec<Vec<u8>>,
    /// Databases that were not saved because a program kept writing to them.
    pub in_use: Vec<Vec<u8>>,
    /// True if not all files were saved, because there are too many, they are too large in total, or time ran out.
    pub is_cut: bool,
    /// Error, if nothing was saved.
    pub failed: Option<String>,
    /// True if these are the first local files that the store holds.
    pub is_first: bool,
}

impl LocalReport {
    /// Describes in one line the files that were not saved, except those that are too large. Names at most three.
    pub fn problem(&self) -> Option<String> {
        let names = |paths: &[Vec<u8>]| {
            let names: Vec<_> = paths.iter().take(3).map(|path| String::from_utf8_lossy(path)).collect();
            let more = if paths.len() > 3 { format!(" and {} more", paths.len() - 3) } else { String::new() };
            names.join(", ") + &more
        };
        let failed = self.failed.iter().map(|why| format!("files out of scope were not saved: {why}"));
        let cut = self
            .is_cut
            .then(|| "not all files out of scope were saved: too many, too large or too little time".to_owned());
        let unread =
            (!self.unread.is_empty()).then(|| format!("not saved, as they cannot be read: {}", names(&self.unread)));
        let in_use = (!self.in_use.is_empty())
            .then(|| format!("not saved, as a program wrote to them: {}", names(&self.in_use)));
        let all: Vec<_> = failed.chain(cut).chain(unread).chain(in_use).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// JSON of a [`LocalReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LocalReportJson<'a> {
    /// number of files that were saved
    files: u64,
    /// their size
    bytes: u64,
    /// files above `keep_file_size_mb`
    too_large: Vec<JsonPath<'a, AtPath>>,
    /// files that could not be read
    unread: Vec<JsonPath<'a, AtPath>>,
    /// databases that a program kept writing to
    in_use: Vec<JsonPath<'a, AtPath>>,
    /// true if there were too many files, or time was short
    cut: bool,
    /// error, or null
    failed: Option<&'a str>,
}

impl<'a> From<&'a LocalReport> for LocalReportJson<'a> {
    fn from(report: &'a LocalReport) -> Self {
        let paths = |paths: &'a [Vec<u8>]| paths.iter().map(|path| JsonPath::new(path.as_slice())).collect();
        Self {
            files: report.files,
            bytes: report.bytes,
            too_large: paths(&report.too_large),
            unread: paths(&report.unread),
            in_use: paths(&report.in_use),
            cut: report.is_cut,
            failed: report.failed.as_deref(),
        }
    }
}

crate::json::serialized_as! {
    LocalReport => LocalReportJson<'_>;
}
