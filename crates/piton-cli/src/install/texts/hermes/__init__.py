# Written by `piton install hermes`, removed by `piton uninstall hermes`. What is changed here is lost on the next install.
"""The command /piton. What is typed after it goes to piton, whose answer is shown without a call of the model."""

import json
import os
import subprocess

COMMAND = @COMMAND@
TIMEOUT_SECS = @TIMEOUT_SECS@

_sessions = set()


def _note_session(session_id=None, **_):
    if session_id:
        _sessions.add(session_id)


def _answer(arguments):
    event = {"hook_event_name": "piton_command", "prompt": arguments or "", "cwd": os.getcwd()}
    # A gateway serves many sessions in one process, and does not say which of them asks.
    if len(_sessions) == 1:
        event["session_id"] = next(iter(_sessions))
    try:
        done = subprocess.run(
            COMMAND, input=json.dumps(event), capture_output=True, text=True, timeout=TIMEOUT_SECS, check=False
        )
        return json.loads(done.stdout)["text"]
    except Exception as error:
        return f"piton gave no answer ({error}): run `piton rollback` in a shell"


def register(ctx):
    ctx.register_hook("pre_llm_call", _note_session)
    ctx.register_command(
        "piton",
        _answer,
        description="List checkpoints, or restore the files of one",
        args_hint="[N | diff N | N FILE]",
    )
