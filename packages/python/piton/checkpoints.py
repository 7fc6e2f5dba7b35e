"""The checkpoint manager of the Hermes agent, on top of piton: the same names, arguments and results.

    from piton.checkpoints import CheckpointManager

It uses the same store, ``$HERMES_HOME/checkpoints``. What is better: nothing is lost if the process is killed, a restore removes files made
since, and no ``git`` program is needed.

The project is the given directory itself. Checkpoints of a directory around it are not listed, compared or restored.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

from .client import Client, PitonError, _path, _paths

__all__ = [
    "CheckpointManager",
    "clear_all",
    "clear_legacy",
    "format_checkpoint_list",
    "maybe_auto_prune_checkpoints",
    "prune_checkpoints",
    "store_status",
]

logger = logging.getLogger(__name__)


def _hermes_home() -> Path:
    return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")


CHECKPOINT_BASE = _hermes_home() / "checkpoints"
_PRUNE_MARKER_NAME = ".last_prune"
_HASH = re.compile(r"^[0-9a-fA-F]{4,64}$")
_MARKERS = (".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile")

#: Why the agent goes on without a checkpoint that it would have had with more time.
_LATE = {
    "deadline": "it takes longer than deadline_ms allows, and is completed in the background",
    "busy": "the store was busy for longer than deadline_ms allows",
    "being_completed": "an earlier one is still being completed in the background",
}

_clients: Dict[Tuple[Any, ...], Client] = {}
_lock = threading.Lock()


def _client(base: Path, settings: Tuple[Tuple[str, str], ...] = ()) -> Client:
    """Returns the server for a base and settings. It is started once per process."""
    key = (str(base), os.getpid(), settings)
    with _lock:
        client = _clients.get(key)
        if client is None or client._process.poll() is not None:
            client = _clients[key] = Client(base=base, env=dict(settings))
        return client


def _renew_after_fork() -> None:
    """Renews the lock, which another thread of the parent process may hold."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_after_fork)


def _is_project(base: Path, directory: str) -> bool:
    """Returns true if the store has checkpoints of this very directory.

    Only then is it the project that the server finds for it. For any other directory the server goes up, to the first one that has
    checkpoints or a marker.
    """
    store, name = base / "store", hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    if not (store / "projects" / f"{name}.json").is_file():
        return False
    if (store / "refs/hermes" / name).is_file():
        return True
    try:
        packed = (store / "packed-refs").read_bytes()
    except OSError:
        return False
    return any(line.endswith(f" refs/hermes/{name}".encode()) for line in packed.splitlines())


def _has_marker(directory: Path) -> bool:
    return any(os.path.lexists(directory / marker) for marker in _MARKERS)


def _is_too_broad(directory: Path) -> bool:
    """Returns true for the home directory and those above it."""
    home = _normalize_path("~")
    return directory == directory.parent or directory in (home, *home.parents)


def _pinned(directory: str) -> Dict[str, str]:
    """Returns variables with which the server takes this directory for the project, whatever is around it.

    The server never goes up to the home directory. What else it finds by the home directory is named here.
    """
    home = Path.home()
    return {
        "HERMES_HOME": str(_hermes_home()),
        "XDG_STATE_HOME": os.environ.get("XDG_STATE_HOME") or str(home / ".local/state"),
        "AWS_SHARED_CREDENTIALS_FILE": os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or str(home / ".aws/credentials"),
        "HOME": os.path.dirname(directory),
    }


@atexit.register
def _close() -> None:
    with _lock:
        for key, client in list(_clients.items()):
            if key[1] == os.getpid():
                client.close()
        _clients.clear()


def _normalize_path(path_value: str) -> Path:
    return Path(path_value).expanduser().resolve()


def _validate_commit_hash(commit_hash: str) -> Optional[str]:
    if not isinstance(commit_hash, str) or not commit_hash.strip():
        return "Empty commit hash"
    if commit_hash.startswith("-"):
        return f"Invalid commit hash (must not start with '-'): {commit_hash!r}"
    if not _HASH.match(commit_hash):
        return f"Invalid commit hash (expected 4-64 hex characters): {commit_hash!r}"
    return None


def _validate_file_path(file_path: str, working_dir: str) -> Optional[str]:
    if not isinstance(file_path, str) or not file_path.strip():
        return "Empty file path"
    if os.path.isabs(file_path):
        return f"File path must be relative, got absolute path: {file_path!r}"
    try:
        root = _normalize_path(working_dir)
        path = (root / file_path).resolve()
    except Exception as error:
        return f"Invalid file path: {file_path!r}: {error}"
    if root not in [path, *path.parents]:
        return f"File path escapes the working directory via traversal: {file_path!r}"
    return None


class CheckpointManager:
    """Takes at most one checkpoint per directory and turn, and restores them. Its methods do not raise.

    A limit that is not given is that of the user's configuration, ``$HERMES_HOME/config.yaml``, as is every other setting.
    """

    #: Limits of Hermes, shown for those that are not given.
    _DEFAULTS = {"max_snapshots": 20, "max_total_size_mb": 500, "max_file_size_mb": 10}

    def __init__(
        self,
        enabled: bool = False,
        max_snapshots: Optional[int] = None,
        max_total_size_mb: Optional[int] = None,
        max_file_size_mb: Optional[int] = None,
    ) -> None:
        given = {"max_snapshots": max_snapshots, "max_total_size_mb": max_total_size_mb, "max_file_size_mb": max_file_size_mb}
        limits = {name: self._DEFAULTS[name] if value is None else int(value) for name, value in given.items()}
        self.enabled = enabled
        self.max_snapshots = max(1, limits["max_snapshots"])
        self.max_total_size_mb = max(0, limits["max_total_size_mb"])
        self.max_file_size_mb = max(0, limits["max_file_size_mb"])
        self._given = {name for name, value in given.items() if value is not None}
        self._checkpointed_dirs: Set[str] = set()

    def _limits(self) -> Dict[str, int]:
        """Returns the limits that the caller set, here or later."""
        limits = {name: getattr(self, name) for name in self._DEFAULTS}
        return {name: value for name, value in limits.items() if name in self._given or value != self._DEFAULTS[name]}

    def _settings(self) -> Dict[str, str]:
        return {f"PITON_{name.upper()}": str(value) for name, value in self._limits().items()}

    def _call(self, method: str, directory: str, **params: Any) -> Any:
        """Calls a method for a directory with checkpoints. Fails with ``not_found`` if it has none: those around it are of other files."""
        if not _is_project(CHECKPOINT_BASE, directory):
            raise PitonError(f"there are no checkpoints of {directory}", "not_found")
        return _client(CHECKPOINT_BASE, tuple(self._settings().items())).call(method, **_path("directory", directory), **params)

    def _take(self, directory: str, reason: str) -> Dict[str, Any]:
        """Takes a checkpoint within ``deadline_ms``; a late one is completed in the background, and what is missing is in the journal."""
        params = {"reason": reason, "automatic": True, **_path("directory", directory)}
        if _has_marker(Path(directory)) or _is_project(CHECKPOINT_BASE, directory):
            client = _client(CHECKPOINT_BASE, tuple(self._settings().items()))
            return client.call("take", **params)
        with Client(base=CHECKPOINT_BASE, env={**self._settings(), **_pinned(directory)}) as client:
            return client.call("take", **params)

    def new_turn(self) -> None:
        """Begins a turn: each directory may have a checkpoint again."""
        self._checkpointed_dirs.clear()

    def ensure_checkpoint(self, working_dir: str, reason: str = "auto") -> bool:
        """Takes a checkpoint if there was none in this turn. Returns true if one was taken. Never raises."""
        if not self.enabled:
            return False
        try:
            path = _normalize_path(working_dir)
            directory = str(path)
            if _is_too_broad(path):
                logger.debug("no checkpoint of %s: too broad", directory)
                return False
            if directory in self._checkpointed_dirs:
                return False
            self._checkpointed_dirs.add(directory)
            report = self._take(directory, reason)
            if report["why"] in _LATE:
                logger.warning("no checkpoint of %s yet: %s", directory, _LATE[report["why"]])
            elif report["outcome"] != "taken":
                logger.debug("no checkpoint of %s: %s %s", directory, report["outcome"], report["why"] or "")
            return report["outcome"] == "taken"
        except PitonError as error:
            logger.warning("no checkpoint of %s: %s", working_dir, error)
            return False
        except Exception as error:
            logger.debug("no checkpoint of %s: %s", working_dir, error)
            return False

    def list_checkpoints(self, working_dir: str) -> List[Dict[str, Any]]:
        """Lists the checkpoints of a directory, newest first."""
        try:
            rows = self._call("list", str(_normalize_path(working_dir)), limit=self._limits().get("max_snapshots"))
        except Exception as error:
            logger.debug("no list: %s", error)
            return []
        return [
            {
                "hash": row["id"],
                "short_hash": row["short_id"],
                "timestamp": row["time"],
                "reason": row["reason"],
                "files_changed": row["files_changed"] or 0,
                "insertions": row["insertions"] or 0,
                "deletions": row["deletions"] or 0,
            }
            for row in rows
        ]

    def diff(self, working_dir: str, commit_hash: str) -> Dict[str, Any]:
        """Compares a checkpoint with the files as they are."""
        wrong = _validate_commit_hash(commit_hash)
        if wrong:
            return {"success": False, "error": wrong}
        try:
            report = self._call("diff", str(_normalize_path(working_dir)), **{"from": commit_hash})
        except Exception as error:
            return {"success": False, "error": _words(error, commit_hash)}
        return {"success": True, "stat": _stat(report), "diff": report["diff"].rstrip("\n")}

    def restore(self, working_dir: str, commit_hash: str, file_path: Optional[str] = None) -> Dict[str, Any]:
        """Makes the directory, or one file, equal to a checkpoint. What is there is saved first."""
        wrong = _validate_commit_hash(commit_hash) or (file_path and _validate_file_path(file_path, working_dir))
        if wrong:
            return {"success": False, "error": wrong}
        try:
            directory = str(_normalize_path(working_dir))
            reason = self._call("show", directory, checkpoint=commit_hash)["reason"]
        except Exception as error:
            return {"success": False, "error": _words(error, commit_hash), "debug": getattr(error, "hint", None)}
        try:
            paths = _paths([file_path] if file_path else [])
            report = self._call("restore", directory, checkpoint=commit_hash, across_sessions=True, **paths)
        except Exception as error:
            why = error.message if isinstance(error, PitonError) else error
            return {"success": False, "error": f"Restore failed: {why}", "debug": getattr(error, "hint", None)}
        result: Dict[str, Any] = {
            "success": report["outcome"] != "partly",
            "restored_to": commit_hash[:8],
            "reason": reason,
            "directory": directory,
        }
        if report["outcome"] == "partly":
            left = ", ".join(f"{one['path']}: {one['why']}" for one in report["left"])
            result["error"] = f"Restored, but not everything: {left}"
        if file_path:
            result["file"] = file_path
        return result

    def get_working_dir_for_path(self, file_path: str) -> str:
        """Returns the directory of the project that a file belongs to: the first one upwards with a marker, below the home directory;
        otherwise the file's own."""
        try:
            path = _normalize_path(file_path)
            candidate = path if path.is_dir() else path.parent
            for directory in [candidate, *candidate.parents]:
                if _is_too_broad(directory):
                    break
                if _has_marker(directory):
                    return str(directory)
            return str(candidate)
        except Exception as error:
            logger.debug("no project of %r: %s", file_path, error)
            return os.path.dirname(str(file_path))


def _words(error: Exception, commit_hash: str) -> str:
    return f"Checkpoint '{commit_hash}' not found" if getattr(error, "kind", None) == "not_found" else str(error)


def _stat(report: Dict[str, Any]) -> str:
    """Formats the counts as ``git diff --stat`` does."""
    files = report["files"]
    if not files:
        return ""
    width = max(len(file["path"]) for file in files)
    most = max(file["insertions"] + file["deletions"] for file in files)
    digits = max(len(str(most)), 3 if any(file["binary"] for file in files) else 0)
    scale = min(1.0, 40 / most) if most else 1.0
    # The parts of the files in the patch, which are in the same order but for renamed ones. Within a part, no line of the contents begins
    # like these.
    patch = re.split(r"(?m)^diff --git ", report["diff"])[1:]
    patch = [part for part in patch if not re.match(r".*\nsimilarity index ", part)]
    compared = [file["path"] for file in files if file["status"] != "renamed"]
    found = [re.findall(r"(?m)^literal (\d+)$", part) for part in patch]
    sizes = dict(zip(compared, found)) if len(compared) == len(found) else {}

    def line(file: Dict[str, Any]) -> str:
        if file["binary"]:
            both = sizes.get(file["path"], [])
            changed = f" {both[1]} -> {both[0]} bytes" if len(both) == 2 else ""
            return f" {file['path']:<{width}} | {'Bin':>{digits}}{changed}"
        bar = "+" * round(file["insertions"] * scale) + "-" * round(file["deletions"] * scale)
        return f" {file['path']:<{width}} | {file['insertions'] + file['deletions']:>{digits}} {bar}".rstrip()

    def counted(count: int, word: str) -> str:
        return f"{count} {word}{'' if count == 1 else 's'}"

    counts = [f"{counted(len(files), 'file')} changed"]
    if report["insertions"]:
        counts.append(f"{counted(report['insertions'], 'insertion')}(+)")
    if report["deletions"]:
        counts.append(f"{counted(report['deletions'], 'deletion')}(-)")
    return "\n".join([*map(line, files), " " + ", ".join(counts)]).strip()


def format_checkpoint_list(checkpoints: List[Dict[str, Any]], directory: str) -> str:
    """Formats a list of checkpoints for the user."""
    if not checkpoints:
        return f"No checkpoints found for {directory}"
    lines = [f"📸 Checkpoints for {directory}:\n"]
    for number, one in enumerate(checkpoints, 1):
        when = one["timestamp"]
        if "T" in when:
            date, clock = when.split("T", 1)
            when = f"{date} {clock[:5]}"
        files = one.get("files_changed", 0)
        counts = f", +{one.get('insertions', 0)}/-{one.get('deletions', 0)})"
        changed = f"  ({files} file{'s' if files != 1 else ''}{counts}" if files else ""
        lines.append(f"  {number}. {one['short_hash']}  {when}  {one['reason']}{changed}")
    lines.append("\n  /rollback <N>             restore to checkpoint N")
    lines.append("  /rollback diff <N>        preview changes since checkpoint N")
    lines.append("  /rollback <N> <file>      restore a single file from checkpoint N")
    return "\n".join(lines)


_NOTHING = {"scanned": 0, "deleted_orphan": 0, "deleted_stale": 0, "errors": 0, "bytes_freed": 0}


def prune_checkpoints(
    retention_days: int = 7, delete_orphans: bool = True, checkpoint_base: Optional[Path] = None, max_total_size_mb: int = 0
) -> Dict[str, int]:
    """Drops projects that are gone or were not used for long, and gives back the space. Never raises."""
    try:
        base = Path(checkpoint_base or CHECKPOINT_BASE)
        if not base.exists():
            return dict(_NOTHING)
        report = _client(base).call(
            "prune",
            retention_days=max(0, int(retention_days)),
            max_size_mb=max(0, int(max_total_size_mb)),
            keep_orphans=not delete_orphans,
            yes=True,
            **_path("directory", base),
        )
    except Exception as error:
        logger.warning("checkpoints were not pruned: %s", error)
        return {**_NOTHING, "errors": 1}
    return {name: report[name] if isinstance(report[name], int) else len(report[name]) for name in _NOTHING}


def maybe_auto_prune_checkpoints(
    retention_days: int = 7,
    min_interval_hours: int = 24,
    delete_orphans: bool = True,
    checkpoint_base: Optional[Path] = None,
    max_total_size_mb: int = 0,
) -> Dict[str, object]:
    """Like :func:`prune_checkpoints`, at most once per interval. Never raises."""
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    out: Dict[str, object] = {"skipped": False}
    try:
        if not base.exists():
            out["result"] = dict(_NOTHING)
            return out
        marker, now = base / _PRUNE_MARKER_NAME, time.time()
        try:
            if now - float(marker.read_text(encoding="utf-8").strip()) < min_interval_hours * 3600:
                out["skipped"] = True
                return out
        except (OSError, ValueError):
            pass
        out["result"] = prune_checkpoints(retention_days, delete_orphans, base, max_total_size_mb)
        marker.write_text(str(now), encoding="utf-8")
    except Exception as error:
        logger.warning("checkpoints were not pruned: %s", error)
        out["error"] = str(error)
    return out


def store_status(checkpoint_base: Optional[Path] = None) -> Dict[str, Any]:
    """Describes the store: sizes, projects, archives of older layouts."""
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    keys = ("store_size_bytes", "legacy_size_bytes", "total_size_bytes", "project_count")
    out: Dict[str, Any] = {"base": str(base), **{key: 0 for key in keys}, "projects": [], "legacy_archives": []}
    if base.exists():
        report = _client(base).call("status", limit=0, **_path("directory", base))
        out.update({key: report[key] for key in (*keys, "projects", "legacy_archives")})
    return out


def clear_all(checkpoint_base: Optional[Path] = None) -> Dict[str, Any]:
    """Deletes the store and the archives."""
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    if not base.exists():
        return {"bytes_freed": 0, "deleted": False}
    try:
        freed = _client(base).call("clear", force=True, **_path("directory", base.parent))["bytes_freed"]
    except PitonError as error:
        logger.warning("the store was not deleted: %s", error)
        return {"bytes_freed": 0, "deleted": False}
    return {"bytes_freed": freed, "deleted": True}


def clear_legacy(checkpoint_base: Optional[Path] = None) -> Dict[str, Any]:
    """Deletes the archives of older layouts."""
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    if not base.exists():
        return {"bytes_freed": 0, "deleted": 0}
    try:
        archives = len(store_status(base)["legacy_archives"])
        freed = _client(base).call("clear-legacy", force=True, **_path("directory", base))["bytes_freed"]
    except PitonError as error:
        logger.warning("the archives were not deleted: %s", error)
        return {"bytes_freed": 0, "deleted": 0}
    return {"bytes_freed": freed, "deleted": archives}
