//! Files that code in a language other than shell destroys, as far as it names them.
//!
//! Nothing is parsed. If the text calls something that removes files, every path in quotes may be removed; a file is
//! written over if its path stands where a call takes the name of its output. A path that is computed is not found.

use std::path::{Component, Path, PathBuf};

use piton::triggers::{Loss, LossExtent, LossKind};

/// Calls that remove files, empty them or replace them.
const DESTROYING: &[&str] = &[
    "rmtree",
    "os.remove",
    "os.unlink",
    ".unlink(",
    "unlinkSync",
    "rmSync",
    "rmdirSync",
    "fs.rm",
    "fs.unlink",
    "rimraf",
    "FileUtils.rm",
    "File.delete",
    "unlink ",
    "rm -r",
    "truncate(",
    "shutil.move",
    "DROP TABLE",
    "drop table",
    "DELETE FROM",
    "delete from",
    "Remove-Item",
    "rd /s",
    "rmdir /s",
    "del /",
];
/// Those of them that write in place.
const IN_PLACE: &[&str] = &["truncate(", "DROP TABLE", "drop table", "DELETE FROM", "delete from"];
/// Calls whose first argument is written over.
const WRITING: &[&str] = &["writeFileSync(", "writeFile(", "createWriteStream(", "truncateSync(", "os.truncate("];
/// Calls whose second argument is replaced.
const REPLACING: &[&str] =
    &["os.rename(", "os.replace(", "shutil.copy", "shutil.move(", "renameSync(", "copyFileSync(", "fs.rename("];
/// Number of texts in quotes that are looked at, and the length limit of one.
const LITERALS_MAX: usize = 256;
const LITERAL_BYTES_MAX: usize = 512;

/// Returns the first call in the text that destroys files, without its punctuation.
pub(super) fn destroying_call(text: &str) -> Option<&'static str> {
    let call = DESTROYING.iter().find(|call| text.contains(**call))?;
    Some(call.trim_matches(['.', '(', ' ', '/']))
}

/// Returns the files that the text names and may destroy, if they exist.
pub(super) fn losses(text: &str, cwd: &Path, home: Option<&Path>) -> Vec<Loss> {
    let removes = destroying_call(text).is_some();
    let is_in_place = IN_PLACE.iter().any(|call| text.contains(call));
    let mut losses: Vec<Loss> = Vec::new();
    for literal in literals(text) {
        let (kind, extent) = match (is_written(text, &literal), removes) {
            (true, _) => (LossKind::Rewritten, LossExtent::File),
            (false, true) if is_in_place => (LossKind::Rewritten, LossExtent::Tree),
            (false, true) => (LossKind::Unlinked, LossExtent::Tree),
            (false, false) => continue,
        };
        let Some(path) = path_of(literal.text, cwd, home) else { continue };
        let is_pattern = literal.text.contains(['*', '?']);
        let is_there =
            if is_pattern { path.parent().is_some_and(Path::is_dir) } else { path.symlink_metadata().is_ok() };
        let mut loss = Loss::file(path, kind);
        (loss.extent, loss.is_pattern) = (extent, is_pattern);
        if is_there && !losses.contains(&loss) {
            losses.push(loss);
        }
    }
    losses
}

/// A text in quotes, with its position.
struct Literal<'a> {
    text: &'a str,
    start: usize,
    end: usize,
}

fn literals(text: &str) -> Vec<Literal<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find(['\'', '"', '`']).map(|found| at + found) {
        at = open + 1;
        let quote = char::from(text.as_bytes()[open]);
        let Some(close) = text[at..].find([quote, '\n']).map(|found| at + found) else { break };
        if text[close..].starts_with(quote) {
            let inner = &text[at..close];
            at = close + 1;
            if !inner.is_empty() && inner.len() <= LITERAL_BYTES_MAX && found.len() < LITERALS_MAX {
                found.push(Literal { text: inner, start: open, end: at });
            }
        }
    }
    found
}

/// Returns true if the text is the name of a file that is written over.
fn is_written(text: &str, literal: &Literal<'_>) -> bool {
    let line = text[..literal.start].rsplit('\n').next().unwrap_or_default().trim_end();
    let rest = text[literal.end..].trim_start();
    let mode = rest.strip_prefix(',').map(|rest| rest.trim_start().trim_start_matches("mode="));
    let mode = mode.and_then(|mode| mode.strip_prefix(['\'', '"'])).unwrap_or_default();
    let opens = mode.starts_with('w') || ["r+", "rb+"].iter().any(|both| mode.starts_with(both));
    let after = rest.trim_start_matches(')');
    let writes = after.starts_with(".write_") || after.starts_with(".open('w") || after.starts_with(".open(\"w");
    let is_second = line.ends_with(',') && REPLACING.iter().any(|call| line.contains(call));
    opens || writes && rest.starts_with(')') || is_second || WRITING.iter().any(|call| line.ends_with(call))
}

/// Returns the absolute path. Returns `None` for the root, the home directory and the directories around `cwd`, which a
/// text in quotes rarely means.
fn path_of(text: &str, cwd: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let path = match text.strip_prefix("~/") {
        Some(below) => home?.join(below),
        None => cwd.join(text),
    };
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other => whole.push(other),
        }
    }
    let is_around = cwd.starts_with(&whole) || home.is_some_and(|home| home.starts_with(&whole));
    (!is_around).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_exist_and_are_removed_or_written_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["a.bin", "b.bin"] {
            std::fs::write(dir.path().join(name), "x").expect("a file");
        }
        let found = |text: &str| -> Vec<String> {
            let shown = |loss: &Loss| {
                let name = loss.path.file_name().expect("a name").to_string_lossy().into_owned();
                if loss.kind == LossKind::Unlinked { format!("-{name}") } else { format!("!{name}") }
            };
            losses(text, dir.path(), Some(Path::new("/home/u"))).iter().map(shown).collect()
        };
        for (text, want) in [
            ("print(open('a.bin').read())", &[][..]),
            ("open('a.bin', 'rb'); open(\"b.bin\", mode=\"w\")", &["!b.bin"]),
            ("import shutil; shutil.rmtree('a.bin'); shutil.rmtree('.'); os.remove('/'); x('missing')", &["-a.bin"]),
            ("for p in glob.glob('*.bin'): os.remove(p)", &["-*.bin"]),
            ("Path('a.bin').write_text('x')", &["!a.bin"]),
            ("f = open('a.bin', 'r+b'); f.truncate(0)", &["!a.bin"]),
            ("with open('a.bin', 'rb') as f, open(name, 'r+') as g: g.truncate(0)", &["!a.bin"]),
            ("sqlite3.connect('a.bin').execute('DROP TABLE users')", &["!a.bin"]),
            ("os.replace('a.bin', 'b.bin')", &["!b.bin"]),
            ("fs.writeFileSync('a.bin', fs.readFileSync('b.bin'))", &["!a.bin"]),
        ] {
            assert_eq!(found(text), want, "{text}");
        }
    }
}
