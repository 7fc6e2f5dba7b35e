"""An agent loop with rollback per turn. `python agent.py DIR`; type a prompt, `undo` to take the last turn back, or `quit`."""

import subprocess
import sys
import uuid

import piton

directory, session = sys.argv[1], str(uuid.uuid4())


def work(prompt: str) -> None:
    """The agent's turn. A real one asks a model; this one runs the prompt in the shell."""
    subprocess.run(prompt, shell=True, cwd=directory, check=False)


with piton.Client() as client:
    turns: list[str] = []
    for prompt in map(str.strip, sys.stdin):
        if prompt == "quit":
            break
        if prompt == "undo":
            if not turns:
                print("nothing to undo")
                continue
            try:
                report = client.revert(turns.pop(), directory=directory)
                print(f"{report['outcome']}: {report['written']} written, {report['removed']} removed")
            except piton.PitonError as error:
                print(error)
            continue
        turn = str(uuid.uuid4())
        begun = client.event("prompt", directory, session_id=session, turn_id=turn, prompt=prompt)
        if not begun["protected"]:
            print(f"not protected: {begun['missed']}")
        work(prompt)
        client.event("turn_end", directory, session_id=session, turn_id=turn)
        turns.append(turn)
        changed = client.turns(directory, limit=1)[0]
        print(f"no checkpoint: {changed['missed']}" if changed["missed"] else f"{changed['files_changed']} files changed")
