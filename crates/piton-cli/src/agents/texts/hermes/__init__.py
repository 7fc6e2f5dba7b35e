# Written by `piton install hermes`, removed by `piton uninstall hermes`. What is changed here is lost on the next install.
"""The command /piton. What is typed after it goes to piton, whose answer is shown without a call of the model."""

import importlib.metadata
import json
import os
import subprocess

COMMAND = @COMMAND@
TIMEOUT_SECS = @TIMEOUT_SECS@

# The session that was used last, and whether it is one of several that a gateway serves in this process.
_session = None
_is_one_of_many = False


def _note_session(session_id=None, platform=None, **_):
    global _session, _is_one_of_many
    if not session_id or platform == "subagent":
        return
    if _session not in (None, session_id) and platform not in (None, "", "cli", "tui"):
        _is_one_of_many = True
    _session = session_id


def _answer(arguments):
    event = {"hook_event_name": "piton_command", "prompt": arguments or "", "cwd": os.getcwd()}
    # Hermes does not say which session asks. In a terminal it is the one that was used last; in a gateway it may be any.
    if _session and not _is_one_of_many:
        event["session_id"] = _session
    try:
        done = subprocess.run(
            COMMAND, input=json.dumps(event), capture_output=True, text=True, timeout=TIMEOUT_SECS, check=False
        )
        return json.loads(done.stdout)["text"]
    except Exception as error:
        return f"piton gave no answer ({error}): run `piton rollback` in a shell"


def _tell_version():
    # For piton's hooks, which Hermes starts with this environment.
    try:
        os.environ["PITON_HERMES_VERSION"] = importlib.metadata.version("hermes-agent")
    except Exception:
        os.environ.pop("PITON_HERMES_VERSION", None)


def register(ctx):
    _tell_version()
    ctx.register_hook("pre_llm_call", _note_session)
    ctx.register_command(
        "piton",
        _answer,
        description="List checkpoints, or restore the files of one",
        args_hint="[N | diff N | N FILE]",
    )
