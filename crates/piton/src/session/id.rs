//! Ids of session records. An id becomes a file name, and must be a plain one on every system.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Layout;

/// Leaves room in the 255 bytes of a file name for `.yaml`, and for the suffix of a file that is not a record.
const BYTES_MAX: usize = 200;
/// Length to which a refused id is cut in the error.
const SHOWN_CHARS_MAX: usize = 60;

/// Valid id of a session record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(String);

impl SessionId {
    /// Parses an id. Fails with `Invalid` if it is not a plain file name, or is a name that piton itself uses.
    pub fn parse(name: &str) -> Result<Self> {
        match objection(name) {
            None => Ok(Self(name.to_owned())),
            Some(why) => {
                let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
                Err(Error::new(ErrorKind::Invalid, format!("use {shown:?} as the id of a session"))
                    .because(why)
                    .with_hint("an id is a plain file name, like 20261115-fix-login"))
            }
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::json::serialized_as_text! {
    SessionId = "id of the session record";
}

fn objection(name: &str) -> Option<&'static str> {
    let is_odd = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    Some(match name {
        "" => "it is empty",
        _ if name.contains('\0') => "it holds a NUL",
        _ if name.contains(['/', '\\']) => "it holds a slash, and would lead to another directory",
        _ if name.starts_with('.') => "it begins with a dot",
        _ if name.contains(is_odd) => "it holds a line end or another control character",
        _ if name.len() > BYTES_MAX => "it is longer than 200 bytes",
        _ if is_device(name) => "it is the name of a device on Windows",
        _ if Layout::is_own_name(name) => "piton's own files in the base are called so",
        _ => return None,
    })
}

/// Returns true if Windows opens a device under this name, which it does with any extension and in any case.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let is_numbered = |prefix: &str| {
        let number = stem.strip_prefix(prefix);
        number.is_some_and(|number| {
            matches!(number, "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
        })
    };
    matches!(stem.as_str(), "con" | "prn" | "aux" | "nul" | "conin$" | "conout$")
        || is_numbered("com")
        || is_numbered("lpt")
}
