"""The manager beside the one of Hermes, on one store: the same lists, diffs, refusals and results.

``HERMES_SOURCE`` names the unpacked source distribution of hermes-agent 0.19; without it, the tests say so and are skipped.
"""

import os
import sys
import tempfile
import types
import unittest
from pathlib import Path

SOURCE = os.environ.get("HERMES_SOURCE")


@unittest.skipUnless(SOURCE, "HERMES_SOURCE is not set")
class BesideHermesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.root = Path(cls.temp.name).resolve()
        constants = types.ModuleType("hermes_constants")
        constants.get_hermes_home = lambda: cls.root / "hermes"
        package = types.ModuleType("hermes_cli")
        package.__path__ = [os.path.join(SOURCE, "hermes_cli")]
        sys.modules.update(hermes_constants=constants, hermes_cli=package)
        sys.path[:0] = [os.path.join(SOURCE, "tools"), SOURCE]
        import checkpoint_manager

        from piton import checkpoints

        checkpoints.CHECKPOINT_BASE = checkpoint_manager.CHECKPOINT_BASE
        cls.modules = checkpoint_manager, checkpoints

    @classmethod
    def tearDownClass(cls):
        cls.modules[1]._close()
        cls.temp.cleanup()

    def setUp(self):
        self.project = self.root / self.id().rsplit(".", 1)[1]
        self.project.mkdir()
        self.dir = str(self.project)
        self.theirs, self.ours = (module.CheckpointManager(enabled=True) for module in self.modules)
        self.write("a.txt", "1\n")
        self.assertTrue(self.theirs.ensure_checkpoint(self.dir, "by theirs"))
        self.write("a.txt", "1\n2\n")
        self.write("b.txt", "b\n")
        self.assertTrue(self.ours.ensure_checkpoint(self.dir, "by ours"))

    def write(self, name, text):
        (self.project / name).write_text(text)

    def both(self, call):
        return [call(manager) for manager in (self.theirs, self.ours)]

    def test_lists_are_equal(self):
        theirs, ours = self.both(lambda manager: manager.list_checkpoints(self.dir))
        without_time = lambda rows: [{key: row[key] for key in row if key != "timestamp"} for row in rows]
        self.assertEqual(without_time(theirs), without_time(ours))
        formatted = [module.format_checkpoint_list(ours, self.dir) for module in self.modules]
        self.assertEqual(*formatted)

    def test_diffs_are_equal(self):
        self.write("a.txt", "3\n")
        first = self.ours.list_checkpoints(self.dir)[1]["hash"]
        theirs, ours = self.both(lambda manager: manager.diff(self.dir, first))
        plain = lambda text: [line for line in text.splitlines() if not line.startswith("index ")]
        self.assertEqual(plain(theirs["diff"]), plain(ours["diff"]))
        self.assertEqual(theirs["stat"], ours["stat"])

    def test_refusals_are_equal(self):
        own = self.ours.list_checkpoints(self.dir)[0]["hash"]
        for bad in ("", "-p", "HEAD", "zz", "deadbeef"):
            self.assertEqual(*self.both(lambda manager: manager.diff(self.dir, bad)))
            self.assertEqual(*self.both(lambda manager: manager.restore(self.dir, bad)["error"]))
        for bad in ("/etc/passwd", "../x", " "):
            self.assertEqual(*self.both(lambda manager: manager.restore(self.dir, own, bad)))

    def test_restores_are_equal_but_for_files_made_since(self):
        first = self.ours.list_checkpoints(self.dir)[1]["hash"]
        theirs = self.theirs.restore(self.dir, first)
        self.assertEqual((self.project / "a.txt").read_text(), "1\n")
        self.write("a.txt", "9\n")
        self.assertEqual(self.ours.restore(self.dir, first), theirs)
        self.assertEqual((self.project / "a.txt").read_text(), "1\n")
        self.assertFalse((self.project / "b.txt").exists(), "made since, and removed")

    def test_status_has_the_same_keys(self):
        theirs, ours = (module.store_status() for module in self.modules)
        self.assertEqual(set(theirs), set(ours))
        self.assertEqual(theirs["project_count"], ours["project_count"])
        self.assertTrue(set(theirs["projects"][0]) <= set(ours["projects"][0]))


if __name__ == "__main__":
    unittest.main()
