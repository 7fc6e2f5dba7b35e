"""A client of ``piton serve``: starts the program, and calls its methods.

Every method of the contract (docs/schema/rpc.json) can be called with :meth:`Client.call`. The common ones have a method of their own. A
client may be used by several threads; their requests are worked on at the same time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

__all__ = ["PROTOCOL", "Cancelled", "Client", "PitonError", "find_program"]

#: Version of the protocol that this client speaks.
PROTOCOL = 1

#: A checkpoint: its number in the list, the beginning of its id, or its mark.
Checkpoint = Union[int, str]
#: A path. Bytes that are not UTF-8 are kept (``os.fsdecode``).
StrPath = Union[str, "os.PathLike[str]"]
Progress = Callable[[Dict[str, Any]], None]


class PitonError(Exception):
    """A request failed. ``kind`` is a word of the contract, such as ``not_found`` or ``busy``."""

    def __init__(self, message: str, kind: str = "other", hint: Optional[str] = None, code: int = 0) -> None:
        super().__init__(message)
        self.message, self.kind, self.hint, self.code = message, kind, hint, code

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class Cancelled(PitonError):
    """A request was cancelled before it changed anything."""


def find_program() -> str:
    """Returns the path of the program: ``$PITON``, else the one installed with this package, else the one on the search path."""
    named = os.environ.get("PITON")
    if named:
        return named
    own = os.path.join(sysconfig.get_path("scripts"), "piton")
    if os.access(own, os.X_OK):
        return own
    found = shutil.which("piton")
    if not found:
        raise PitonError("cannot find the program piton", "not_found", "install the package again, or set PITON to its path")
    return found


def escape(path: bytes) -> str:
    """Returns the bytes of a path as the protocol has them: printable ASCII, each other byte and % as % and two digits."""
    return "".join(chr(byte) if 0x21 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02x}" for byte in path)


def _path(name: str, path: StrPath) -> Dict[str, str]:
    raw = os.fsencode(path)
    try:
        return {name: raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_bytes": escape(raw)}


def _paths(paths: Sequence[StrPath]) -> Dict[str, Any]:
    return {"paths_bytes": [escape(os.fsencode(path)) for path in paths]} if paths else {}


class _Pending:
    def __init__(self, progress: Optional[Progress]) -> None:
        self.done = threading.Event()
        self.answer: Optional[Dict[str, Any]] = None
        self.progress = progress
        self.warnings: List[str] = []


class Client:
    """A running ``piton serve``. Use it in a ``with`` statement, or call :meth:`close`."""

    def __init__(
        self,
        program: Optional[StrPath] = None,
        base: Optional[StrPath] = None,
        config: Optional[StrPath] = None,
        env: Optional[Mapping[str, str]] = None,
        on_warning: Optional[Callable[[str], None]] = None,
    ) -> None:
        command: List[str] = [os.fspath(program) if program else find_program()]
        for option, value in (("--base", base), ("--config", config)):
            if value is not None:
                command += [option, os.fspath(value)]
        self._on_warning = on_warning
        self._lock = threading.Lock()
        self._pending: Dict[int, _Pending] = {}
        self._last = 0
        self._is_over = False
        try:
            self._process = subprocess.Popen(
                command + ["serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **env} if env else None,
            )
        except OSError as error:
            raise PitonError(f"cannot start {command[0]}: {error}", "io") from error
        self._reader = threading.Thread(target=self._read, name="piton", daemon=True)
        self._reader.start()
        try:
            self.server: Dict[str, Any] = self.call("initialize", protocol=PROTOCOL)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server, after the requests that it has begun."""
        process = self._process
        try:
            if process.stdin and not process.stdin.closed:
                process.stdin.close()
        except OSError:
            pass
        process.wait()
        self._reader.join()
        if process.stdout:
            process.stdout.close()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "method" in message:
                self._notified(message["method"], message.get("params") or {})
                continue
            with self._lock:
                pending = self._pending.pop(message.get("id"), None)
            if pending:
                pending.answer = message
                pending.done.set()
        with self._lock:
            self._is_over = True
            left, self._pending = list(self._pending.values()), {}
        for pending in left:
            pending.done.set()

    def _notified(self, method: str, params: Dict[str, Any]) -> None:
        with self._lock:
            pending = self._pending.get(params.get("id", -1))
        if method == "progress" and pending and pending.progress:
            pending.progress(params)
        elif method == "warning":
            if pending:
                pending.warnings.append(params.get("message", ""))
            if self._on_warning:
                self._on_warning(params.get("message", ""))

    def _send(self, message: Dict[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                stdin.write(data)
                stdin.flush()
        except (OSError, ValueError) as error:
            raise PitonError("the server has ended", "io") from error

    def call(self, method: str, progress: Optional[Progress] = None, timeout: Optional[float] = None, **params: Any) -> Any:
        """Calls a method, and returns its result. Fails with :class:`PitonError`.

        ``progress`` is called from another thread. After ``timeout`` seconds the request is cancelled; work that cannot be left half done
        goes on to its end, and its result is returned.
        """
        params = {name: value for name, value in params.items() if value is not None}
        if progress:
            params["progress"] = True
        pending = _Pending(progress)
        with self._lock:
            if self._is_over:
                raise PitonError("the server has ended", "io")
            self._last += 1
            own = self._last
            self._pending[own] = pending
        self._send({"jsonrpc": "2.0", "id": own, "method": method, "params": params})
        if not pending.done.wait(timeout):
            self._send({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": own}})
            pending.done.wait()
        answer = pending.answer
        if answer is None:
            raise PitonError("the server has ended", "io")
        if "error" in answer:
            error = answer["error"]
            data = error.get("data") or {}
            kind = Cancelled if error["code"] == -32800 else PitonError
            raise kind(error["message"], data.get("kind", "other"), data.get("hint"), error["code"])
        return answer["result"]

    # The verbs. Their results are described by docs/schema/*.json.

    def take(self, directory: StrPath = ".", reason: Optional[str] = None, **more: Any) -> Dict[str, Any]:
        """Takes a checkpoint. ``outcome`` is ``taken``, ``unchanged`` or ``skipped``."""
        return self.call("take", reason=reason, **_path("directory", _absolute(directory)), **more)

    def list(self, directory: StrPath = ".", limit: Optional[int] = None) -> List[Dict[str, Any]]:
        """Lists the checkpoints, newest first."""
        return self.call("list", limit=limit, **_path("directory", _absolute(directory)))

    def diff(
        self, checkpoint: Checkpoint = 1, to: Optional[Checkpoint] = None, paths: Sequence[StrPath] = (), directory: StrPath = "."
    ) -> Dict[str, Any]:
        """Compares a checkpoint with the files as they are, or with another checkpoint."""
        return self.call("diff", **{"from": checkpoint}, to=to, **_paths(paths), **_path("directory", _absolute(directory)))

    def restore(
        self, checkpoint: Checkpoint, paths: Sequence[StrPath] = (), directory: StrPath = ".", dry_run: bool = False, **more: Any
    ) -> Dict[str, Any]:
        """Makes files equal to a checkpoint. What is there is saved first: :meth:`undo` brings it back."""
        where = {**_paths(paths), **_path("directory", _absolute(directory))}
        return self.call("restore", checkpoint=checkpoint, dry_run=dry_run, **where, **more)

    def undo(self, directory: StrPath = ".", **more: Any) -> Dict[str, Any]:
        """Goes back to before the last restore."""
        return self.call("undo", **_path("directory", _absolute(directory)), **more)

    def revert(self, turn: Checkpoint, paths: Sequence[StrPath] = (), directory: StrPath = ".", **more: Any) -> Dict[str, Any]:
        """Takes back one turn, and keeps everything else."""
        return self.call("revert", turn=turn, **_paths(paths), **_path("directory", _absolute(directory)), **more)

    def turns(self, directory: StrPath = ".", limit: Optional[int] = None) -> List[Dict[str, Any]]:
        """Lists the turns, newest first."""
        return self.call("turns", limit=limit, **_path("directory", _absolute(directory)))

    def event(self, event: str, directory: StrPath = ".", agent: Optional[str] = None, **fields: Any) -> Dict[str, Any]:
        """Reports an event of an agent: ``prompt``, ``before_tool``, ``turn_end``, ``session_start`` or ``session_end``, with
        ``session_id``, ``turn_id``, ``prompt`` and so on. ``protected`` in the result is false if a checkpoint is missing."""
        payload = {"event": event, "cwd": os.fspath(_absolute(directory)), **fields}
        return self.call("event", agent=agent, payload=payload)


def _absolute(directory: StrPath) -> Path:
    return Path(os.path.abspath(os.fspath(directory)))
