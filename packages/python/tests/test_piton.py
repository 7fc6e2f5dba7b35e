"""Tests of the client and of the manager, with the real program."""

import os
import tempfile
import threading
import unittest
from pathlib import Path

import piton
from piton import checkpoints


class Case(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        root = Path(self.temp.name).resolve()
        self.project, self.base = root / "project", root / "base"
        self.project.mkdir()
        self.write("a.txt", "one\n")

    def tearDown(self):
        self.temp.cleanup()

    def write(self, name, text):
        (self.project / name).write_text(text)

    def read(self, name):
        return (self.project / name).read_text()


class ClientTest(Case):
    def client(self, **more):
        client = piton.Client(base=self.base, config=os.devnull, **more)
        self.addCleanup(client.close)
        return client

    def test_take_restore_and_undo(self):
        client = self.client()
        self.assertEqual(client.take(self.project, "first")["outcome"], "taken")
        self.assertEqual(client.take(self.project)["outcome"], "unchanged")
        self.write("a.txt", "two\n")
        self.write("new.txt", "new\n")
        self.assertEqual(client.diff(directory=self.project)["files_changed"], 2)
        plan = client.restore(1, directory=self.project, dry_run=True)
        self.assertEqual((plan["write"], plan["remove"]), (["a.txt"], ["new.txt"]))
        self.assertEqual(client.restore(1, directory=self.project)["outcome"], "restored")
        self.assertEqual(sorted(os.listdir(self.project)), ["a.txt"])
        client.undo(self.project)
        self.assertEqual((self.read("a.txt"), self.read("new.txt")), ("two\n", "new\n"))

    def test_one_turn_is_taken_back(self):
        client = self.client()
        for turn in ("t1", "t2"):
            begun = client.event("prompt", self.project, session_id="s", turn_id=turn, prompt=turn)
            self.assertTrue(begun["protected"], begun)
            self.write(f"{turn}.txt", turn)
            client.event("turn_end", self.project, session_id="s", turn_id=turn)
        self.assertEqual([turn["turn"] for turn in client.turns(self.project)], ["t2", "t1"])
        client.revert("t1", directory=self.project)
        self.assertEqual(sorted(os.listdir(self.project)), ["a.txt", "t2.txt"])

    def test_errors_have_a_kind_and_a_hint(self):
        client = self.client()
        with self.assertRaises(piton.PitonError) as caught:
            client.restore(7, directory=self.project)
        self.assertEqual(caught.exception.kind, "not_found")
        self.assertTrue(caught.exception.hint)
        with self.assertRaises(piton.PitonError) as caught:
            client.call("take", no_such=1)
        self.assertEqual(caught.exception.kind, "usage")

    def test_threads_share_a_client(self):
        client, found = self.client(), []
        client.take(self.project)
        threads = [threading.Thread(target=lambda: found.append(len(client.list(self.project)))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [1] * 20)

    def test_names_that_are_not_utf_8(self):
        client = self.client()
        name = os.fsdecode(b"n\xff")
        (self.project / name).write_bytes(b"one")
        client.take(self.project)
        (self.project / name).write_bytes(b"two")
        client.restore(1, [name], self.project)
        self.assertEqual((self.project / name).read_bytes(), b"one")

    def test_a_server_that_is_gone_is_an_error_and_closing_ends_it(self):
        client = self.client()
        client._process.kill()
        with self.assertRaises(piton.PitonError):
            for _ in range(2):
                client.list(self.project)
        other = self.client()
        other.close()
        self.assertEqual(other._process.returncode, 0)


class ManagerTest(Case):
    def setUp(self):
        super().setUp()
        self.before, checkpoints.CHECKPOINT_BASE = checkpoints.CHECKPOINT_BASE, self.base
        self.manager = checkpoints.CheckpointManager(enabled=True)
        self.dir = str(self.project)

    def tearDown(self):
        checkpoints._close()
        checkpoints.CHECKPOINT_BASE = self.before
        super().tearDown()

    def test_one_checkpoint_per_turn(self):
        self.assertTrue(self.manager.ensure_checkpoint(self.dir, "before write_file"))
        self.write("a.txt", "two\n")
        self.assertFalse(self.manager.ensure_checkpoint(self.dir))
        self.manager.new_turn()
        self.assertTrue(self.manager.ensure_checkpoint(self.dir))
        self.manager.new_turn()
        self.assertFalse(self.manager.ensure_checkpoint(self.dir), "nothing changed")
        rows = self.manager.list_checkpoints(self.dir)
        self.assertEqual([row["reason"] for row in rows], ["auto", "before write_file"])
        self.assertEqual((rows[0]["files_changed"], rows[0]["insertions"], rows[0]["deletions"]), (1, 1, 1))
        self.assertEqual(set(rows[0]), {"hash", "short_hash", "timestamp", "reason", "files_changed", "insertions", "deletions"})

    def test_it_is_off_by_default_and_never_takes_too_much(self):
        self.assertFalse(checkpoints.CheckpointManager().ensure_checkpoint(self.dir))
        for broad in ("/", str(Path.home()), "/no/such/directory"):
            self.assertFalse(self.manager.ensure_checkpoint(broad), broad)

    def test_restore_of_all_and_of_one_file(self):
        self.manager.ensure_checkpoint(self.dir, "first")
        first = self.manager.list_checkpoints(self.dir)[0]["hash"]
        self.write("a.txt", "two\n")
        self.write("b.txt", "b\n")
        done = self.manager.restore(self.dir, first, "a.txt")
        self.assertEqual(
            done, {"success": True, "restored_to": first[:8], "reason": "first", "directory": self.dir, "file": "a.txt"}
        )
        self.assertEqual((self.read("a.txt"), self.read("b.txt")), ("one\n", "b\n"))
        self.assertTrue(self.manager.restore(self.dir, first)["success"])
        self.assertFalse((self.project / "b.txt").exists())
        self.assertGreater(len(self.manager.list_checkpoints(self.dir)), 1, "what was there is saved")

    def test_what_is_no_checkpoint_or_path_is_refused(self):
        self.manager.ensure_checkpoint(self.dir)
        own = self.manager.list_checkpoints(self.dir)[0]["hash"]
        for bad in ("", "-p", "HEAD", "zz", "abc"):
            self.assertFalse(self.manager.restore(self.dir, bad)["success"], bad)
            self.assertFalse(self.manager.diff(self.dir, bad)["success"], bad)
        for bad in ("/etc/passwd", "../out", " "):
            self.assertFalse(self.manager.restore(self.dir, own, bad)["success"], bad)
        self.assertIn("not found", self.manager.restore(self.dir, "deadbeef")["error"])

    def test_diff(self):
        self.manager.ensure_checkpoint(self.dir)
        self.write("a.txt", "two\n")
        found = self.manager.diff(self.dir, self.manager.list_checkpoints(self.dir)[0]["hash"])
        self.assertTrue(found["success"])
        self.assertIn("-one\n+two", found["diff"])
        self.assertIn("1 file changed", found["stat"])

    def test_max_snapshots(self):
        manager = checkpoints.CheckpointManager(enabled=True, max_snapshots=3)
        for at in range(6):
            self.write("a.txt", str(at))
            manager.new_turn()
            self.assertTrue(manager.ensure_checkpoint(self.dir, str(at)))
        self.assertEqual([row["reason"] for row in manager.list_checkpoints(self.dir)], ["5", "4", "3"])

    def test_the_store_is_described_pruned_and_cleared(self):
        self.assertEqual(checkpoints.store_status()["project_count"], 0)
        self.assertEqual(checkpoints.prune_checkpoints(), checkpoints._NOTHING)
        self.manager.ensure_checkpoint(self.dir)
        status = checkpoints.store_status()
        self.assertEqual((status["project_count"], status["projects"][0]["workdir"]), (1, self.dir))
        self.assertGreater(status["store_size_bytes"], 0)
        self.assertEqual(checkpoints.prune_checkpoints()["scanned"], 1)
        # The program prunes by itself after a take, and notes the time in the same file.
        (self.base / ".last_prune").unlink(missing_ok=True)
        self.assertFalse(checkpoints.maybe_auto_prune_checkpoints()["skipped"])
        self.assertTrue(checkpoints.maybe_auto_prune_checkpoints()["skipped"])
        self.assertTrue(checkpoints.clear_all()["deleted"])
        self.assertEqual(checkpoints.store_status()["project_count"], 0)

    def test_the_list_for_the_user(self):
        self.assertEqual(checkpoints.format_checkpoint_list([], "/x"), "No checkpoints found for /x")
        self.manager.ensure_checkpoint(self.dir, "before patch")
        text = checkpoints.format_checkpoint_list(self.manager.list_checkpoints(self.dir), self.dir)
        self.assertIn("1. ", text)
        self.assertIn("before patch", text)
        self.assertIn("/rollback", text)

    def test_the_project_of_a_file(self):
        (self.project / "Cargo.toml").write_text("")
        (self.project / "src").mkdir()
        self.assertEqual(self.manager.get_working_dir_for_path(str(self.project / "src/main.rs")), self.dir)


if __name__ == "__main__":
    unittest.main()
