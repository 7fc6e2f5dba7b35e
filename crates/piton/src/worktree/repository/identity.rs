//! Identity of a project across machines, from the configuration of the git repository that it is in.

use std::path::Path;

use super::{Located, locate};
use crate::fsx;
use crate::sys;

/// Size limit of a configuration that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Returns the URL of the remote `origin` without scheme, user and `.git`, and the project's directory in the repository,
/// separated by a colon. Returns `None` without a repository or without that remote.
pub(crate) fn repository_identity(project: &Path) -> Option<String> {
    let Located::Found(place) = locate(project) else { return None };
    let config = fsx::read_small(&place.common.join("config"), CONFIG_BYTES_MAX).ok().flatten()?;
    let url = plain_url(&origin_url(&String::from_utf8_lossy(&config))?)?;
    let inside = fsx::canonical(project).ok()?;
    let inside = inside.strip_prefix(fsx::canonical(&place.root).ok()?).ok()?;
    Some(format!("{url}:{}", String::from_utf8_lossy(sys::path_bytes(inside))))
}

/// Returns the `url` of the section `[remote "origin"]`.
fn origin_url(config: &str) -> Option<String> {
    let mut is_origin = false;
    let mut found = None;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            is_origin = line.replace(char::is_whitespace, "").eq_ignore_ascii_case("[remote\"origin\"]");
        } else if is_origin
            && let Some((key, value)) = line.split_once('=')
            && key.trim().eq_ignore_ascii_case("url")
        {
            found = Some(value.trim().trim_matches('"').to_owned());
        }
    }
    found.filter(|url| !url.is_empty())
}

/// Returns host and path of a URL, the same for `https://you@host/a/b.git`, `ssh://git@host:22/a/b` and `git@host:a/b.git`.
/// Returns `None` for a path: it means something on one machine only.
fn plain_url(url: &str) -> Option<String> {
    let (host, path) = match url.split_once("://") {
        Some(("file", _)) => return None,
        Some((_, rest)) => rest.split_once('/')?,
        None => url.split_once(':').filter(|(host, _)| !host.contains('/'))?,
    };
    let host = host.rsplit('@').next().unwrap_or(host);
    let host = host.split_once(':').map_or(host, |(host, _)| host).to_ascii_lowercase();
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    (!host.is_empty() && !path.is_empty()).then(|| format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_one_identity_whatever_the_form_of_its_url() {
        let same = [
            "https://example.com/a/b.git",
            "https://you:secret@example.com/a/b",
            "ssh://git@Example.com:22/a/b.git/",
            "git@example.com:a/b.git",
            "example.com:a/b",
        ];
        for url in same {
            assert_eq!(plain_url(url).as_deref(), Some("example.com/a/b"), "{url}");
        }
        for url in ["/srv/a.git", "../a", "file:///srv/a", "https://example.com", "./a:b"] {
            assert_eq!(plain_url(url), None, "{url}");
        }
    }

    #[test]
    fn the_remote_called_origin_counts() {
        let config =
            "[core]\n\turl = no\n[remote \"up\"]\n url = x:y\n[remote \"origin\"]\n\tfetch = z\n\tURL = a:b/c\n";
        assert_eq!(origin_url(config).as_deref(), Some("a:b/c"));
        assert_eq!(origin_url("[remote \"up\"]\nurl = a:b\n"), None);
    }
}
