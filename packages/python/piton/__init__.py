"""The undo layer for AI coding agents: a client of ``piton serve``.

    with piton.Client() as client:
        client.take(directory=".", reason="before the change")
        client.restore(1, directory=".")

``piton.checkpoints`` has the interface of the checkpoint manager of the Hermes agent.
"""

from .client import Cancelled, Client, PitonError, find_program

__all__ = ["Cancelled", "Client", "PitonError", "find_program"]
