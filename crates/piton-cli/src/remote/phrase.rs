//! Recovery phrases: read from a file, written to one, or shown once.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use piton::Error;

use crate::context::Context;
use crate::output::Output;
use crate::platform;

piton::path_keys! {
    pub(crate) AtPhraseFile = "phrase_file", "phrase_file_bytes", "the file with the recovery phrase, or null";
}

/// Shows a new phrase, and what it is for.
pub(crate) fn tell_phrase(phrase: Option<&str>, output: &Output) {
    let Some(phrase) = phrase else { return };
    let lines: Vec<_> = phrase.split_whitespace().collect::<Vec<_>>().chunks(6).map(|words| words.join(" ")).collect();
    output.text(&format!(
        "\nRecovery phrase:\n\n    {}\n\nIt opens everything that is pushed, and other machines join with it. It is not \
         shown again,\nand nothing else brings the checkpoints back if this machine is lost: write it down.\n",
        lines.join("\n    ")
    ));
    if output.is_quiet && !output.is_json {
        output.warn(&format!("recovery phrase, not shown again: {phrase}"));
    }
}

/// Maximum number of bytes of a file with a phrase.
const PHRASE_BYTES_MAX: u64 = 1 << 16;

/// Reads a phrase from a file; `-` is stdin.
pub(crate) fn read_phrase(file: &Path, context: &Context, output: &Output) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") && output.request().is_none() {
        std::io::stdin().lock().take(PHRASE_BYTES_MAX).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(context.dir.join(file));
        opened.and_then(|opened| opened.take(PHRASE_BYTES_MAX).read_to_string(&mut text))
    };
    read.map_err(|error| Error::io("read the recovery phrase in", file, error))?;
    Ok(text)
}

/// A file for a new phrase. It is created before the phrase is made, so that a phrase is never lost, and removed again
/// unless [`PhraseFile::keep`] is called.
pub(crate) struct PhraseFile {
    path: PathBuf,
    file: Option<std::fs::File>,
}

impl PhraseFile {
    /// Creates the file. Fails if it exists.
    pub(crate) fn create(path: &Path) -> piton::Result<Self> {
        let file = platform::create_private(path).map_err(|error| Error::io("create", path, error))?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    /// Writes the phrase, and returns the path. Fails with an error that has the phrase if that is not possible.
    pub(crate) fn keep(mut self, phrase: &str) -> piton::Result<PathBuf> {
        let Some(mut file) = self.file.take() else { return Ok(self.path.clone()) };
        let written = writeln!(file, "{phrase}").and_then(|()| piton::sync_file(&file));
        written.map_err(|error| {
            Error::io("write the recovery phrase to", &self.path, error)
                .with_hint(format!("the remote is added; write the phrase down, it is not shown again: {phrase}"))
        })?;
        Ok(self.path.clone())
    }
}

impl Drop for PhraseFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
