"""A client of ``piton serve``: starts the program, and calls its methods.

Every method of the contract (docs/schema/rpc.json) can be called with :meth:`Client.call`. The common ones have a method of their own. A
client may be used by several threads; their requests are worked on at the same time.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import subprocess
import sysconfig
import threading
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

__all__ = ["PROTOCOL", "Cancelled", "Client", "PitonError", "find_program"]

logger = logging.getLogger(__name__)

#: Version of the protocol that this client speaks.
PROTOCOL = 1

#: A checkpoint: its number in the list, the beginning of its id, or its mark.
Checkpoint = Union[int, str]
#: A path. Bytes that are not UTF-8 are kept (``os.fsdecode``).
StrPath = Union[str, "os.PathLike[str]"]
#: Paths, or one alone.
Paths = Union[StrPath, Sequence[StrPath]]
Progress = Callable[[Dict[str, Any]], None]

#: Limit of a line in bytes, if the server names none.
_LINE_BYTES = 16 << 20
#: Depth from which on a server may refuse to read a message.
_DEPTH = 100
#: Seconds that a server has to end after it was asked to by a signal.
_GRACE = 10


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


def _path(name: str, path: StrPath) -> Dict[str, Any]:
    raw = os.fsencode(path)
    try:
        return {name: raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_bytes": escape(raw)}


def _paths(paths: Paths) -> Dict[str, Any]:
    # A text is a sequence, too: of its letters.
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return {"paths_bytes": [escape(os.fsencode(path)) for path in several]} if several else {}


def _encode(message: Dict[str, Any], bytes_max: int) -> bytes:
    """Returns a message as a line. Text that is not Unicode gets replacement characters. Fails with ``usage`` if the line is too long."""
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise PitonError("cannot send the message: it is nested too deeply", "usage") from None
    try:
        line = text.encode()
    except UnicodeEncodeError:
        line = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    if len(line) > bytes_max:
        raise PitonError(f"cannot send a message of {len(line)} bytes: the limit is {bytes_max}", "usage")
    return line + b"\n"


def _is_deep(value: Any, levels: int = _DEPTH) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return levels == 0 or any(_is_deep(inner, levels - 1) for inner in value)


class _Pending:
    def __init__(self, progress: Optional[Progress], is_deep: bool) -> None:
        self.done = threading.Event()
        self.is_deep = is_deep
        self.answer: Optional[Dict[str, Any]] = None
        self.progress = progress
        self.warnings: List[str] = []


class Client:
    """A running ``piton serve``. Use it in a ``with`` statement, or call :meth:`close`. A forked process cannot use that of its parent."""

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
        # Never held together with the other lock: a write may block until answers are read.
        self._write_lock = threading.Lock()
        self._pending: Dict[int, _Pending] = {}
        self._last = 0
        self._is_over = False
        self._is_cut = False
        self.server: Dict[str, Any] = {}
        try:
            self._process = subprocess.Popen(
                command + ["serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **env} if env else None,
                # Ctrl-C in the terminal is for the program, which may go on: it interrupts a turn of an agent.
                start_new_session=True,
            )
        except OSError as error:
            raise PitonError(f"cannot start {command[0]}: {error}", "io") from error
        _clients.add(self)
        self._reader = threading.Thread(target=self._read, name="piton", daemon=True)
        self._reader.start()
        try:
            self.server = self.call("initialize", protocol=PROTOCOL)
        except BaseException as error:
            self.close(_GRACE)
            if isinstance(error, PitonError) and error.kind == "io":
                code = self._process.returncode
                raise PitonError(f"cannot start {command[0]}: it ended with code {code} before it answered", "io") from error
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout: Optional[float] = 60) -> None:
        """Ends the server, after the requests that it has begun. One that has not ended after ``timeout`` seconds is terminated, and killed
        if that does not help; ``None`` waits as long as it takes. Fails with ``usage`` in a callback: no answer is read meanwhile."""
        if threading.current_thread() is self._reader:
            raise PitonError("cannot close the client in a callback: no answer is read meanwhile", "usage")
        process = self._process
        # Another thread may be writing to a server that does not read.
        if self._write_lock.acquire(timeout=-1 if timeout is None else timeout):
            try:
                if process.stdin and not process.stdin.closed:
                    process.stdin.close()
            except OSError:
                pass
            finally:
                self._write_lock.release()
        for seconds, stop in ((timeout, process.terminate), (_GRACE, process.kill)):
            try:
                process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                logger.warning("the server does not end: process %d is stopped by a signal", process.pid)
                stop()
        process.wait()
        self._reader.join()
        if process.stdout:
            process.stdout.close()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            for line in stdout:
                self._received(line)
        finally:
            with self._lock:
                self._is_over = True
            self._answer_all(None)

    def _answer_all(self, answer: Optional[Dict[str, Any]]) -> None:
        with self._lock:
            left, self._pending = list(self._pending.values()), {}
        for pending in left:
            pending.answer = answer
            pending.done.set()

    def _received(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            if line.strip():
                # It may have been the answer to any request.
                why = f"cannot read an answer, which is not JSON: {line[:80].decode(errors='replace')}"
                self._answer_all({"error": {"code": 0, "message": why, "data": {"kind": "io"}}})
            return
        if not isinstance(message, dict):
            return
        if "method" in message:
            self._notified(message["method"], message.get("params") or {})
            return
        with self._lock:
            answered = self._answered(message.get("id"))
        for pending in answered:
            pending.answer = message
            pending.done.set()

    def _answered(self, own: Any) -> List[_Pending]:
        """Removes the requests that an answer is for. Without an id it is for a message that the server could not read: for those that are
        nested deeply, or for any."""
        if own is None:
            deep = [one for one, pending in self._pending.items() if pending.is_deep]
            return [self._pending.pop(one) for one in deep or list(self._pending)]
        pending = self._pending.pop(own, None) if isinstance(own, int) else None
        return [pending] if pending else []

    def _notified(self, method: str, params: Dict[str, Any]) -> None:
        try:
            with self._lock:
                pending = self._pending.get(params.get("id", -1))
            if method == "progress" and pending and pending.progress:
                pending.progress(params)
            elif method == "warning":
                if pending:
                    pending.warnings.append(params.get("message", ""))
                if self._on_warning:
                    self._on_warning(params.get("message", ""))
        except BaseException:
            # Without this thread, every request would wait forever.
            logger.exception("cannot handle a notification: %s", method)

    def _send(self, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            with self._write_lock:
                if self._is_cut:
                    raise PitonError("cannot send a message: an earlier one was cut off", "io", "close this client, and start another one")
                try:
                    stdin.write(data)
                    stdin.flush()
                except BaseException:
                    # What an interrupt leaves of a shorter message is in the buffer, and sent with the next one.
                    self._is_cut = len(data) > io.DEFAULT_BUFFER_SIZE
                    raise
        except (OSError, ValueError) as error:
            raise PitonError("the server has ended", "io") from error

    def call(self, method: str, progress: Optional[Progress] = None, timeout: Optional[float] = None, **params: Any) -> Any:
        """Calls a method, and returns its result. Fails with :class:`PitonError`. Text that is not Unicode is sent with replacement
        characters.

        ``progress`` is called from the thread that reads the answers: it cannot call the client, and what it raises is logged. After
        ``timeout`` seconds the request is cancelled; work that cannot be left half done goes on to its end, and its result is returned.
        An exception that is raised while it waits, such as ``KeyboardInterrupt``, cancels the request, too.
        """
        if threading.current_thread() is self._reader:
            raise PitonError(f"cannot call `{method}` in a callback: no answer is read meanwhile", "usage")
        params = {name: value for name, value in params.items() if value is not None}
        if progress:
            params["progress"] = True
        bytes_max = self.server.get("limits", {}).get("line_bytes", _LINE_BYTES)
        with self._lock:
            self._last += 1
            own = self._last
        line = _encode({"jsonrpc": "2.0", "id": own, "method": method, "params": params}, bytes_max)
        pending = _Pending(progress, _is_deep(params))
        with self._lock:
            if self._is_over:
                raise PitonError("the server has ended", "io")
            self._pending[own] = pending
        cancel = _encode({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": own}}, bytes_max)
        try:
            self._send(line)
            if not pending.done.wait(timeout):
                self._send(cancel)
                pending.done.wait()
        except BaseException as raised:
            with self._lock:
                self._pending.pop(own, None)
            # An interrupt by the user or by the caller.
            if not isinstance(raised, PitonError):
                with contextlib.suppress(PitonError):
                    self._send(cancel)
            raise
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
        self, checkpoint: Checkpoint = 1, to: Optional[Checkpoint] = None, paths: Paths = (), directory: StrPath = "."
    ) -> Dict[str, Any]:
        """Compares a checkpoint with the files as they are, or with another checkpoint."""
        where: Dict[str, Any] = {"from": checkpoint, **_paths(paths), **_path("directory", _absolute(directory))}
        return self.call("diff", to=to, **where)

    def restore(
        self, checkpoint: Checkpoint, paths: Paths = (), directory: StrPath = ".", dry_run: bool = False, **more: Any
    ) -> Dict[str, Any]:
        """Makes files equal to a checkpoint. What is there is saved first: :meth:`undo` brings it back."""
        where = {**_paths(paths), **_path("directory", _absolute(directory))}
        return self.call("restore", checkpoint=checkpoint, dry_run=dry_run, **where, **more)

    def undo(self, directory: StrPath = ".", **more: Any) -> Dict[str, Any]:
        """Goes back to before the last restore."""
        return self.call("undo", **_path("directory", _absolute(directory)), **more)

    def revert(self, turn: Checkpoint, paths: Paths = (), directory: StrPath = ".", **more: Any) -> Dict[str, Any]:
        """Takes back one turn, and keeps everything else."""
        return self.call("revert", turn=turn, **_paths(paths), **_path("directory", _absolute(directory)), **more)

    def turns(self, directory: StrPath = ".", limit: Optional[int] = None) -> List[Dict[str, Any]]:
        """Lists the turns, newest first."""
        return self.call("turns", limit=limit, **_path("directory", _absolute(directory)))

    def event(self, event: str, directory: StrPath = ".", agent: Optional[str] = None, **fields: Any) -> Dict[str, Any]:
        """Reports an event of an agent: ``prompt``, ``before_tool``, ``turn_end``, ``session_start`` or ``session_end``, with
        ``session_id``, ``turn_id``, ``prompt`` and so on. ``protected`` in the result is false if a checkpoint is missing. Fails with
        ``invalid`` if the name of the directory is not UTF-8: events have no ``cwd_bytes``."""
        cwd = _path("cwd", _absolute(directory))
        if "cwd" not in cwd:
            raise PitonError(f"cannot report an event of {cwd['cwd_bytes']}: the name is not UTF-8", "invalid", "use `take` and `restore`")
        payload = {"event": event, **cwd, **fields}
        return self.call("event", agent=agent, payload=payload)


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _give_up_after_fork() -> None:
    """Gives up the clients of the parent process. A copy of the pipe to the server would keep it from ever reading the end."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for client in list(_clients):
        client._is_over = True
        client._lock, client._write_lock = threading.Lock(), threading.Lock()
        for pipe in (client._process.stdin, client._process.stdout):
            if pipe and not pipe.closed:
                os.dup2(nowhere, pipe.fileno(), inheritable=False)
    os.close(nowhere)


os.register_at_fork(after_in_child=_give_up_after_fork)


def _absolute(directory: StrPath) -> Path:
    return Path(os.path.abspath(os.fspath(directory)))
