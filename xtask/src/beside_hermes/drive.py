"""Takes checkpoints with Hermes' own manager, again and again, until told to stop.

Usage: drive.py UNPACKED_WHEEL STOP_FILE MAX_SNAPSHOTS SEED PROJECT...

HERMES_HOME says where the store is. Prints how many checkpoints were taken.
"""

import os
import random
import sys

wheel, stop, max_snapshots, seed, *projects = sys.argv[1:]
sys.path.insert(0, wheel)

from tools.checkpoint_manager import CheckpointManager  # noqa: E402

dice = random.Random(int(seed))
manager = CheckpointManager(enabled=True, max_snapshots=int(max_snapshots))
taken = tried = 0
while not os.path.exists(stop):
    project = dice.choice(projects)
    for _ in range(dice.randint(1, 3)):
        name = os.path.join(project, f"hermes-{dice.randint(0, 9)}.txt")
        with open(name, "w", encoding="utf-8") as file:
            file.write(f"{dice.random()}\n" * dice.randint(1, 200))
    manager.new_turn()
    tried += 1
    taken += manager.ensure_checkpoint(project, f"before write_file {tried}")
print(taken, tried)
