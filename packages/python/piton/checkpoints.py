"""The checkpoint manager of the Hermes agent, on top of piton: the same names, arguments and results.

    from piton.checkpoints import CheckpointManager

It uses the same store, ``$HERMES_HOME/checkpoints``. What is better: nothing is lost if the process is killed, a restore removes files made
since, and no ``git`` program is needed.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

from .client import Client, PitonError

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

_clients: Dict[Tuple[Any, ...], Client] = {}
_lock = threading.Lock()


def _client(base: Path, settings: Tuple[Tuple[str, str], ...] = ()) -> Client:
    """Returns the server for a base and settings. It is started once per process."""
    key = (str(base), os.getpid(), settings)
    with _lock:
        client = _clients.get(key)
        if client is None or client._process.poll() is not None:
            # The caller decides about limits, not a configuration file.
            client = _clients[key] = Client(base=base, config=os.devnull, env=dict(settings))
        return client


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
    if not commit_hash or not commit_hash.strip():
        return "Empty commit hash"
    if commit_hash.startswith("-"):
        return f"Invalid commit hash (must not start with '-'): {commit_hash!r}"
    if not _HASH.match(commit_hash):
        return f"Invalid commit hash (expected 4-64 hex characters): {commit_hash!r}"
    return None


def _validate_file_path(file_path: str, working_dir: str) -> Optional[str]:
    if not file_path or not file_path.strip():
        return "Empty file path"
    if os.path.isabs(file_path):
        return f"File path must be relative, got absolute path: {file_path!r}"
    root = _normalize_path(working_dir)
    if root not in [(root / file_path).resolve(), *(root / file_path).resolve().parents]:
        return f"File path escapes the working directory via traversal: {file_path!r}"
    return None


class CheckpointManager:
    """Takes at most one checkpoint per directory and turn, and restores them. Its methods do not raise."""

    def __init__(
        self, enabled: bool = False, max_snapshots: int = 20, max_total_size_mb: int = 500, max_file_size_mb: int = 10
    ) -> None:
        self.enabled = enabled
        self.max_snapshots = max(1, int(max_snapshots))
        self.max_total_size_mb = max(0, int(max_total_size_mb))
        self.max_file_size_mb = max(0, int(max_file_size_mb))
        self._checkpointed_dirs: Set[str] = set()

    def _call(self, method: str, directory: str, **params: Any) -> Any:
        settings = {
            "PITON_MAX_SNAPSHOTS": self.max_snapshots,
            "PITON_MAX_TOTAL_SIZE_MB": self.max_total_size_mb,
            "PITON_MAX_FILE_SIZE_MB": self.max_file_size_mb,
        }
        client = _client(CHECKPOINT_BASE, tuple((name, str(value)) for name, value in settings.items()))
        return client.call(method, directory=directory, **params)

    def new_turn(self) -> None:
        """Begins a turn: each directory may have a checkpoint again."""
        self._checkpointed_dirs.clear()

    def ensure_checkpoint(self, working_dir: str, reason: str = "auto") -> bool:
        """Takes a checkpoint if there was none in this turn. Returns true if one was taken. Never raises."""
        if not self.enabled:
            return False
        try:
            directory = str(_normalize_path(working_dir))
            if directory in ("/", str(Path.home())):
                logger.debug("no checkpoint of %s: too broad", directory)
                return False
            if directory in self._checkpointed_dirs:
                return False
            self._checkpointed_dirs.add(directory)
            report = self._call("take", directory, reason=reason)
            if report["outcome"] != "taken":
                logger.debug("no checkpoint of %s: %s %s", directory, report["outcome"], report["why"] or "")
            return report["outcome"] == "taken"
        except Exception as error:
            logger.debug("no checkpoint of %s: %s", working_dir, error)
            return False

    def list_checkpoints(self, working_dir: str) -> List[Dict]:
        """Lists the checkpoints of a directory, newest first."""
        try:
            rows = self._call("list", str(_normalize_path(working_dir)), limit=self.max_snapshots)
        except PitonError as error:
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

    def diff(self, working_dir: str, commit_hash: str) -> Dict:
        """Compares a checkpoint with the files as they are."""
        wrong = _validate_commit_hash(commit_hash)
        if wrong:
            return {"success": False, "error": wrong}
        try:
            report = self._call("diff", str(_normalize_path(working_dir)), **{"from": commit_hash})
        except PitonError as error:
            return {"success": False, "error": _words(error, commit_hash)}
        return {"success": True, "stat": _stat(report), "diff": report["diff"].rstrip("\n")}

    def restore(self, working_dir: str, commit_hash: str, file_path: Optional[str] = None) -> Dict:
        """Makes the directory, or one file, equal to a checkpoint. What is there is saved first."""
        directory = str(_normalize_path(working_dir))
        wrong = _validate_commit_hash(commit_hash) or (file_path and _validate_file_path(file_path, directory))
        if wrong:
            return {"success": False, "error": wrong}
        try:
            reason = self._call("show", directory, checkpoint=commit_hash)["reason"]
            paths = [file_path] if file_path else None
            report = self._call("restore", directory, checkpoint=commit_hash, paths=paths, across_sessions=True)
        except PitonError as error:
            return {"success": False, "error": _words(error, commit_hash), "debug": error.hint}
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
        """Returns the directory of the project that a file belongs to."""
        path = _normalize_path(file_path)
        candidate = path if path.is_dir() else path.parent
        for directory in [candidate, *candidate.parents]:
            if directory != directory.parent and any((directory / marker).exists() for marker in _MARKERS):
                return str(directory)
        return str(candidate)


def _words(error: PitonError, commit_hash: str) -> str:
    return f"Checkpoint '{commit_hash}' not found" if error.kind == "not_found" else str(error)


def _stat(report: Dict[str, Any]) -> str:
    """Formats the counts as ``git diff --stat`` does."""
    files = report["files"]
    if not files:
        return ""
    width = max(len(file["path"]) for file in files)
    most = max(file["insertions"] + file["deletions"] for file in files)
    scale = min(1.0, 40 / most) if most else 1.0

    def line(file: Dict[str, Any]) -> str:
        bar = "+" * round(file["insertions"] * scale) + "-" * round(file["deletions"] * scale)
        return f" {file['path']:<{width}} | {file['insertions'] + file['deletions']:>{len(str(most))}} {bar}".rstrip()

    def counted(count: int, word: str) -> str:
        return f"{count} {word}{'' if count == 1 else 's'}"

    parts = [f"{counted(len(files), 'file')} changed"]
    if report["insertions"]:
        parts.append(f"{counted(report['insertions'], 'insertion')}(+)")
    if report["deletions"]:
        parts.append(f"{counted(report['deletions'], 'deletion')}(-)")
    return "\n".join([*map(line, files), " " + ", ".join(parts)]).strip()


def format_checkpoint_list(checkpoints: List[Dict], directory: str) -> str:
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
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    if not base.exists():
        return dict(_NOTHING)
    try:
        report = _client(base).call(
            "prune",
            retention_days=max(0, int(retention_days)),
            max_size_mb=max(0, int(max_total_size_mb)),
            keep_orphans=not delete_orphans,
            yes=True,
            directory=str(base),
        )
    except PitonError as error:
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


def store_status(checkpoint_base: Optional[Path] = None) -> Dict:
    """Describes the store: sizes, projects, archives of older layouts."""
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    keys = ("store_size_bytes", "legacy_size_bytes", "total_size_bytes", "project_count")
    out: Dict[str, Any] = {"base": str(base), **{key: 0 for key in keys}, "projects": [], "legacy_archives": []}
    if base.exists():
        report = _client(base).call("status", limit=0, directory=str(base))
        out.update({key: report[key] for key in (*keys, "projects", "legacy_archives")})
    return out


def clear_all(checkpoint_base: Optional[Path] = None) -> Dict[str, Any]:
    """Deletes the store and the archives."""
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    if not base.exists():
        return {"bytes_freed": 0, "deleted": False}
    try:
        freed = _client(base).call("clear", force=True, directory=str(base.parent))["bytes_freed"]
    except PitonError as error:
        logger.warning("the store was not deleted: %s", error)
        return {"bytes_freed": 0, "deleted": False}
    return {"bytes_freed": freed, "deleted": True}


def clear_legacy(checkpoint_base: Optional[Path] = None) -> Dict[str, Any]:
    """Deletes the archives of older layouts."""
    base = Path(checkpoint_base or CHECKPOINT_BASE)
    if not base.exists():
        return {"bytes_freed": 0, "deleted": 0}
    archives = len(store_status(base)["legacy_archives"])
    try:
        freed = _client(base).call("clear-legacy", force=True, directory=str(base))["bytes_freed"]
    except PitonError as error:
        logger.warning("the archives were not deleted: %s", error)
        return {"bytes_freed": 0, "deleted": 0}
    return {"bytes_freed": freed, "deleted": archives}
