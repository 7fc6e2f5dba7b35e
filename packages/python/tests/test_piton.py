"""Tests of the client and of the manager, with the real program."""

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

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

    def within_a_minute(self, work):
        """Returns what the work returns, or raises what it raises. Fails if it hangs."""
        done = []

        def run():
            try:
                done.append((work(), None))
            except BaseException as error:
                done.append((None, error))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(60)
        self.assertTrue(done, "it hangs")
        if done[0][1]:
            raise done[0][1]
        return done[0][0]


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

    def test_texts_that_are_not_unicode_are_sent_with_replacements(self):
        client = self.client()
        self.within_a_minute(lambda: client.take(self.project, os.fsdecode(b"caf\xe9") + " \ud83d\ude00"))
        self.assertEqual(client.list(self.project)[0]["reason"], "caf\ufffd \U0001f600")
        begun = self.within_a_minute(
            lambda: client.event("prompt", self.project, session_id="s", turn_id="t", prompt="rm " + os.fsdecode(b"caf\xe9"))
        )
        self.assertTrue(begun["protected"], begun)

    def test_an_event_of_a_directory_that_is_not_utf_8_is_refused(self):
        client, odd = self.client(), self.project / os.fsdecode(b"d\xff")
        odd.mkdir()
        with self.assertRaises(piton.PitonError) as caught:
            self.within_a_minute(lambda: client.event("prompt", odd, session_id="s", turn_id="t", prompt="x"))
        self.assertEqual(caught.exception.kind, "invalid")
        self.assertEqual(client.take(odd)["outcome"], "skipped")

    def test_a_message_that_is_too_large_or_too_deep_is_an_error(self):
        client, deep = self.client(), "x"
        for _ in range(500):
            deep = [deep]
        for content in ("x" * (17 << 20), deep, [deep] * 2):
            with self.assertRaises(piton.PitonError) as caught:
                self.within_a_minute(lambda: client.event("before_tool", self.project, tool_input={"content": content}))
            self.assertEqual(caught.exception.kind, "usage")
        for content, kind in ((object(), TypeError), (float("nan"), ValueError)):
            with self.assertRaises(kind):
                self.within_a_minute(lambda: client.call("take", reason=content))
        self.assertEqual(client._pending, {})
        self.assertEqual(client.take(self.project)["outcome"], "taken")

    def fake(self, *lines, on_warning=None):
        """Returns a client of a server that answers the first message, and then runs these lines for every other one."""
        loop = ["for line in sys.stdin:", "    seen.append(json.loads(line)['id'])", *(f"    {line}" for line in lines)]
        return self.program(*loop, on_warning=on_warning)

    def program(self, *lines, on_warning=None):
        """Returns a client of a server that answers the first message, and then runs these lines."""
        client = piton.Client(program=self.script(*lines), on_warning=on_warning)
        self.addCleanup(client.close)
        self.addCleanup(client._process.kill)
        return client

    def script(self, *lines):
        """Returns the path of a server that answers the first message, and then runs these lines."""
        program = self.project.parent / "fake"
        body = ["import json, os, sys", "seen = []", "sys.stdin = open(0, buffering=1)"]
        body += ["say = lambda **fields: print(json.dumps(fields), flush=True)"]
        body += ["say(id=json.loads(sys.stdin.readline())['id'], result={})", *lines]
        program.write_text("\n".join([f"#!{sys.executable}", *body, ""]))
        program.chmod(0o755)
        return program

    def interrupted(self, program, *lines):
        """Runs these lines with a client of a server, in a process that a signal may interrupt. Returns its output."""
        body = ["import os, signal, sys, piton", "interrupt = lambda _: os.kill(os.getpid(), signal.SIGINT)"]
        # A process that the tests start ignores it if they run in the background of a shell.
        body.append("signal.signal(signal.SIGINT, signal.default_int_handler)")
        body += ["client = piton.Client(program=sys.argv[1], on_warning=interrupt)", *lines]
        self.write("interrupted.py", "\n".join(body))
        command = [sys.executable, str(self.project / "interrupted.py"), str(program)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=env, start_new_session=True, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_an_interrupt_cancels_the_request(self):
        program = self.script(
            "for line in sys.stdin:",
            "    message = json.loads(line)",
            "    if message['method'] == 'slow': slow = message['id']; say(method='warning', params={})",
            "    if message['method'] == '$/cancelRequest' and message['params']['id'] == slow: open(sys.argv[0] + '.cancelled', 'x')",
        )
        said = self.interrupted(
            program,
            "try: client.call('slow')",
            "except KeyboardInterrupt: print(client._pending)",
            "client.close()",
            "print(client._process.returncode)",
        )
        self.assertEqual(said, "{}\n0\n")
        self.assertTrue((self.project.parent / "fake.cancelled").exists())

    def test_after_an_interrupted_message_the_client_cannot_be_used(self):
        program = self.script("os.read(0, 1); say(method='warning', params={}); sys.stdin.read()")
        said = self.interrupted(
            program,
            "try: client.call('long', content='x' * (4 << 20))",
            "except KeyboardInterrupt: print('interrupted')",
            "try: client.call('next')",
            "except piton.PitonError as error: print(error.kind, error.message)",
            "client.close()",
        )
        self.assertEqual(said, "interrupted\nio cannot send a message: an earlier one was cut off\n")

    def test_a_line_that_is_not_json_fails_the_calls_that_wait(self):
        client, found = self.fake("if len(seen) == 2: print('{no json', flush=True)", "if len(seen) > 2: say(id=seen[-1], result='fine')"), []

        def failing():
            try:
                client.call("plain")
            except piton.PitonError as error:
                found.append((error.kind, error.message))

        threads = [threading.Thread(target=failing, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(found, [("io", "cannot read an answer, which is not JSON: {no json\n")] * 2)
        self.assertEqual(self.within_a_minute(lambda: client.call("plain")), "fine")

    def test_closing_stops_a_server_that_does_not_end(self):
        for first, code in (("pass", -signal.SIGTERM), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", -signal.SIGKILL)):
            is_ready = threading.Event()
            lines = ["import signal, time", first, "say(method='warning', params={})", "time.sleep(600)"]
            client = self.program(*lines, on_warning=lambda _: is_ready.set())
            self.assertTrue(is_ready.wait(60))
            with mock.patch("piton.client._GRACE", 0.1), self.assertLogs("piton.client", "WARNING"):
                self.within_a_minute(lambda: client.close(0.1))
            self.assertEqual(client._process.returncode, code)

    def test_an_answer_without_an_id_fails_the_request_that_it_can_be_for(self):
        refusal = "say(id=None, error={'code': -32700, 'message': 'not JSON', 'data': {'kind': 'usage'}})"
        client, deep, found = self.fake(f"if len(seen) == 2: {refusal}; say(id=seen[0], result='plain')"), "x", []
        for _ in range(120):
            deep = [deep]
        thread = threading.Thread(target=lambda: found.append(client.call("plain")), daemon=True)
        thread.start()
        with self.assertRaises(piton.PitonError) as caught:
            self.within_a_minute(lambda: client.call("deep", content=deep))
        self.assertEqual((caught.exception.kind, caught.exception.code), ("usage", -32700))
        thread.join(60)
        self.assertEqual(found, ["plain"])
        with self.assertRaises(piton.PitonError):
            self.within_a_minute(lambda: self.fake(refusal).call("plain"))

    def test_answers_are_read_while_a_request_is_written(self):
        client = self.program(
            "first = json.loads(sys.stdin.readline())['id']",
            "say(method='progress', params={'id': first})",
            "begun = os.read(0, 1)",
            "for _ in range(3): say(method='warning', params={'message': 'x' * (1 << 20)})",
            "say(id=first, result='first')",
            "rest = begun.decode() + sys.stdin.readline()",
            "say(id=json.loads(rest)['id'], result='second')",
            "sys.stdin.read()",
        )
        found, is_read = [], threading.Event()
        first = threading.Thread(target=lambda: found.append(client.call("first", lambda _: is_read.set())), daemon=True)
        first.start()
        self.assertTrue(is_read.wait(60))
        second = self.within_a_minute(lambda: client.call("second", content="x" * (4 << 20)))
        first.join(60)
        self.assertEqual((found, second), (["first"], "second"))

    def test_threads_with_large_messages_and_refusals(self):
        client, outcomes = self.client(), []
        client.take(self.project)
        self.write("a.txt", "".join(f"{number} line\n" for number in range(60_000)))

        def refused():
            with self.assertRaises(piton.PitonError):
                client.call("take", no_such="x" * 100_000)

        def sent():
            client.event("session_start", self.project, session_id="s", turn_id="t", content="x" * 1_000_000)

        def repeated(work):
            for _ in range(8):
                work()
            outcomes.append(work)

        works = [lambda: client.diff(1, directory=self.project)] * 4 + [refused] * 3 + [sent] * 4
        threads = [threading.Thread(target=repeated, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(len(outcomes), len(works))

    def test_callbacks_that_raise_are_logged_and_the_client_goes_on(self):
        def raising(_):
            raise ZeroDivisionError("in a callback")

        notify = "say(method='{0}', params={{'id': seen[-1], 'message': 'x'}})"
        lines = [notify.format("progress"), notify.format("warning"), "print('7\\nnull\\n[]', flush=True)"]
        client = self.fake(*lines, "say(id=[], result=0); say(id=seen[-1], result=seen[-1])", on_warning=raising)
        for _ in range(2):
            with self.assertLogs("piton.client", "ERROR") as logged:
                self.within_a_minute(lambda: client.call("work", progress=raising))
            self.assertEqual(len(logged.output), 2)

    def test_a_callback_cannot_wait_for_the_client(self):
        client, caught = self.fake("say(method='progress', params={'id': seen[-1]}); say(id=seen[-1], result=1)"), []

        def calling(_):
            try:
                client.call("inner")
            except piton.PitonError as error:
                caught.append(error.kind)

        self.within_a_minute(lambda: client.call("work", progress=calling))
        self.assertEqual(caught, ["usage"])

    def test_a_callback_cannot_close_the_client(self):
        client, caught = self.fake("say(method='progress', params={'id': seen[-1]}); say(id=seen[-1], result=1)"), []

        def closing(_):
            try:
                client.close()
            except piton.PitonError as error:
                caught.append(error.kind)

        self.assertEqual(self.within_a_minute(lambda: client.call("work", progress=closing)), 1)
        self.assertEqual(caught, ["usage"])

    def test_a_path_alone_is_not_taken_for_its_letters(self):
        client = self.client()
        self.write("b", "b\n")
        first = client.take(self.project)["id"]
        for name in ("a.txt", "b"):
            self.write(name, "changed\n")
        self.assertEqual(client.diff(first, paths="b", directory=self.project)["files_changed"], 1)
        report = client.restore(first, paths="a.txt", directory=self.project)
        self.assertEqual((report["written"], self.read("a.txt"), self.read("b")), (1, "one\n", "changed\n"))
        client.restore(first, paths=Path("b"), directory=self.project)
        self.assertEqual(self.read("b"), "b\n")
        with self.assertRaises(piton.PitonError):
            client.restore(first, paths="", directory=self.project)

    def test_closing_does_not_wait_for_forked_processes(self):
        client = self.client()
        (answers, answer), (ends, end) = os.pipe(), os.pipe()
        forked = os.fork()
        if forked == 0:
            try:
                client.list(self.project)
                os.write(answer, b"no error")
            except piton.PitonError as error:
                os.write(answer, error.kind.encode())
            os.read(ends, 1)
            os._exit(0)
        try:
            self.assertEqual(os.read(answers, 10), b"io")
            self.within_a_minute(client.close)
        finally:
            os.write(end, b"x")
            os.waitpid(forked, 0)
            for pipe in (answers, answer, ends, end):
                os.close(pipe)

    def test_an_interrupt_in_the_terminal_does_not_end_the_server(self):
        self.write(
            "interrupted.py",
            "import os, signal, sys, piton\n"
            "signal.signal(signal.SIGINT, lambda *_: None)\n"
            "with piton.Client(base=sys.argv[1], config=os.devnull) as client:\n"
            "    os.killpg(os.getpgrp(), signal.SIGINT)\n"
            "    print(client.take(sys.argv[2])['outcome'])\n",
        )
        command = [sys.executable, str(self.project / "interrupted.py"), str(self.base), str(self.project)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=env, start_new_session=True, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("taken\n", ""))

    def test_a_program_that_is_no_server_is_named(self):
        for program, words in (("/no/such/program", "No such file"), ("false", "code 1"), ("true", "code 0")):
            with self.assertRaisesRegex(piton.PitonError, f"cannot start {program}: .*{words}") as caught:
                piton.Client(program)
            self.assertEqual(caught.exception.kind, "io")

    def test_the_package_runs_the_program(self):
        def run(**variables):
            path = os.pathsep.join(sys.path)
            command = [sys.executable, "-m", "piton", "--version"]
            return subprocess.run(command, env={**os.environ, "PYTHONPATH": path, **variables}, capture_output=True, text=True)

        self.assertRegex(run().stdout, r"^piton \d")
        missing = run(PITON="/no/such/program")
        self.assertEqual((missing.returncode, missing.stderr), (1, "error: cannot start /no/such/program: No such file or directory\n"))

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
        self.hermes = self.project.parent / "hermes"
        self.hermes.mkdir()
        variables = mock.patch.dict(os.environ, HERMES_HOME=str(self.hermes))
        variables.start()
        self.addCleanup(variables.stop)
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
        for broad in ("/", str(Path.home()), str(Path.home().parent), "/no/such/directory"):
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

    def test_a_missing_file_is_not_reported_as_a_missing_checkpoint(self):
        self.manager.ensure_checkpoint(self.dir)
        own = self.manager.list_checkpoints(self.dir)[0]["hash"]
        done = self.manager.restore(self.dir, own, "none.txt")
        self.assertFalse(done["success"])
        self.assertTrue(done["error"].startswith("Restore failed: ") and "none.txt" in done["error"], done)

    def test_the_project_is_the_working_directory_whatever_is_around_it(self):
        inner = self.project / "inner"
        inner.mkdir()
        (self.project / "pyproject.toml").write_text("")
        (inner / "a.txt").write_text("inner one\n")
        outer_manager = checkpoints.CheckpointManager(enabled=True)
        self.assertTrue(outer_manager.ensure_checkpoint(self.dir, "outer"))
        outer = outer_manager.list_checkpoints(self.dir)[0]["hash"]
        self.assertEqual(self.manager.list_checkpoints(str(inner)), [])
        for refused in (self.manager.restore(str(inner), outer), self.manager.diff(str(inner), outer)):
            self.assertEqual((refused["success"], refused["error"]), (False, f"Checkpoint '{outer}' not found"))
        self.assertTrue(self.manager.ensure_checkpoint(str(inner), "inner"))
        rows = self.manager.list_checkpoints(str(inner))
        self.assertEqual([row["reason"] for row in rows], ["inner"])
        self.assertEqual([row["reason"] for row in self.manager.list_checkpoints(self.dir)], ["outer"])
        for file in ("a.txt", None):
            self.write("a.txt", "outer work\n")
            (inner / "a.txt").write_text("bad\n")
            self.assertNotIn("outer work", self.manager.diff(str(inner), rows[0]["hash"])["diff"])
            self.assertTrue(self.manager.restore(str(inner), rows[0]["hash"], file)["success"])
            self.assertEqual(((inner / "a.txt").read_text(), self.read("a.txt")), ("inner one\n", "outer work\n"))

    def test_a_first_checkpoint_is_of_the_working_directory_only(self):
        inner = self.project / "inner"
        inner.mkdir()
        (self.project / ".git").mkdir()
        (inner / "b.txt").write_text("b\n")
        self.assertTrue(self.manager.ensure_checkpoint(str(inner)))
        self.assertEqual([one["workdir"] for one in checkpoints.store_status()["projects"]], [str(inner)])
        self.assertEqual(self.manager.list_checkpoints(self.dir), [])

    def test_a_project_with_packed_refs_is_found(self):
        self.assertTrue(self.manager.ensure_checkpoint(self.dir, "first"))
        own = self.manager.list_checkpoints(self.dir)[0]["hash"]
        (ref,) = (self.base / "store/refs/hermes").iterdir()
        (self.base / "store/packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{own} refs/hermes/{ref.name}\n")
        ref.unlink()
        self.assertEqual([row["hash"] for row in self.manager.list_checkpoints(self.dir)], [own])

    def test_names_and_reasons_that_are_not_utf_8(self):
        inner = self.project / os.fsdecode(b"d\xff")
        inner.mkdir()
        file, name = inner / os.fsdecode(b"n\xff"), os.fsdecode(b"n\xff")
        for directory in (str(inner), self.dir):
            file.write_bytes(b"one")
            taken = self.within_a_minute(lambda: self.manager.ensure_checkpoint(directory, "rm " + os.fsdecode(b"caf\xe9")))
            self.assertTrue(taken)
            row = self.within_a_minute(lambda: self.manager.list_checkpoints(directory))[0]
            self.assertEqual(row["reason"], "rm caf\ufffd")
            file.write_bytes(b"two")
            self.assertTrue(self.within_a_minute(lambda: self.manager.diff(directory, row["hash"]))["success"])
            named = name if directory == str(inner) else os.path.join(inner.name, name)
            done = self.within_a_minute(lambda: self.manager.restore(directory, row["hash"], named))
            self.assertEqual((done.get("error"), file.read_bytes()), (None, b"one"))

    def test_diff(self):
        self.manager.ensure_checkpoint(self.dir)
        self.write("a.txt", "two\n")
        found = self.manager.diff(self.dir, self.manager.list_checkpoints(self.dir)[0]["hash"])
        self.assertTrue(found["success"])
        self.assertIn("-one\n+two", found["diff"])
        self.assertIn("1 file changed", found["stat"])

    def test_the_stat_of_binary_files_is_that_of_git(self):
        (self.project / "changed.bin").write_bytes(bytes(range(256)))
        (self.project / "gone.bin").write_bytes(bytes(200))
        (self.project / "old").write_bytes(bytes(300))
        self.manager.ensure_checkpoint(self.dir)
        (self.project / "changed.bin").write_bytes(bytes(range(255)))
        (self.project / "gone.bin").unlink()
        (self.project / "old").rename(self.project / "renamed")
        (self.project / "new.bin").write_bytes(bytes(7) + b"\ndiff --git a/x b/x\n")
        self.write("a.txt", "diff --git a/x b/x\nliteral 3\n")
        found = self.manager.diff(self.dir, self.manager.list_checkpoints(self.dir)[0]["hash"])
        self.assertEqual(
            found["stat"].splitlines()[:4],
            [
                "a.txt       |   3 ++-",
                " changed.bin | Bin 256 -> 255 bytes",
                " gone.bin    | Bin 200 -> 0 bytes",
                " new.bin     | Bin 0 -> 27 bytes",
            ],
        )
        self.assertTrue(found["stat"].endswith("\n 5 files changed, 2 insertions(+), 1 deletion(-)"), found["stat"])

    def test_nothing_raises(self):
        self.manager.ensure_checkpoint(self.dir)
        own = self.manager.list_checkpoints(self.dir)[0]["hash"]
        for bad in ("a\0b", None, 7):
            self.assertFalse(self.manager.ensure_checkpoint(bad), bad)
            self.assertEqual(self.manager.list_checkpoints(bad), [])
            self.assertFalse(self.manager.diff(bad, own)["success"])
            self.assertFalse(self.manager.restore(bad, own)["success"])
            self.assertFalse(self.manager.diff(self.dir, bad)["success"])
            self.assertFalse(self.manager.restore(self.dir, bad)["success"])
            self.assertIsInstance(self.manager.get_working_dir_for_path(bad), str)
        for bad in ("a\0b", 7):
            self.assertFalse(self.manager.restore(self.dir, own, bad)["success"])
        for bad in (None, "many"):
            with self.assertLogs("piton.checkpoints", "WARNING"):
                self.assertEqual(checkpoints.prune_checkpoints(retention_days=bad), {**checkpoints._NOTHING, "errors": 1})
        checkpoints._close()
        with mock.patch.dict(os.environ, PITON="/no/such/program"):
            self.assertEqual(self.manager.list_checkpoints(self.dir), [])
            self.assertFalse(self.manager.restore(self.dir, own)["success"])
            with self.assertLogs("piton.checkpoints", "WARNING"):
                self.assertEqual(checkpoints.clear_legacy(), {"bytes_freed": 0, "deleted": 0})

    def test_a_process_that_was_forked_within_a_call_can_use_the_store(self):
        self.assertTrue(self.manager.ensure_checkpoint(self.dir))
        with checkpoints._lock:
            forked = os.fork()
            if forked == 0:
                signal.alarm(30)
                os._exit(checkpoints.store_status(self.base)["project_count"])
        _, status = os.waitpid(forked, 0)
        self.assertEqual((os.WIFEXITED(status), os.WEXITSTATUS(status)), (True, 1))

    def test_max_snapshots(self):
        manager = checkpoints.CheckpointManager(enabled=True, max_snapshots=3)
        for at in range(6):
            self.write("a.txt", str(at))
            manager.new_turn()
            self.assertTrue(manager.ensure_checkpoint(self.dir, str(at)))
        self.assertEqual([row["reason"] for row in manager.list_checkpoints(self.dir)], ["5", "4", "3"])

    def configure(self, *lines):
        (self.hermes / "config.yaml").write_text("\n".join(["checkpoints:", *(f"  {line}" for line in lines), ""]))

    def files_of_the_newest_checkpoint(self):
        with tempfile.TemporaryDirectory() as root, piton.Client(base=self.base) as client:
            client.call("export", checkpoint=1, target=os.path.join(root, "out"), directory=self.dir)
            return sorted(path.name for path in Path(root, "out").rglob("*") if path.is_file())

    def test_the_configuration_of_the_user_holds(self):
        self.configure("keep_ignored: false", 'exclude: ["*.gen", "private/"]', "max_snapshots: 2", "max_file_size_mb: 1")
        (self.project / "private").mkdir()
        for name in ("private/key", "x.gen", ".env"):
            self.write(name, "secret\n")
        self.write("large", "x" * (1 << 20) + "x")
        for marker in (False, True):
            if marker:
                self.write("Makefile", "")
            self.manager.new_turn()
            self.assertTrue(self.manager.ensure_checkpoint(self.dir))
            kept = ["Makefile", "a.txt"] if marker else ["a.txt"]
            self.assertEqual(self.files_of_the_newest_checkpoint(), kept)
            self.assertFalse((self.base / "store/refs/local").exists(), "ignored files and secrets are not kept")
        for at in range(3):
            self.write("a.txt", str(at))
            self.manager.new_turn()
            self.assertTrue(self.manager.ensure_checkpoint(self.dir, str(at)))
        self.assertEqual([row["reason"] for row in self.manager.list_checkpoints(self.dir)], ["2", "1"])

    def test_a_checkpoint_that_is_late_does_not_hold_the_agent_back_and_is_completed(self):
        self.configure("deadline_ms: 1")
        for marker in (False, True):
            if marker:
                self.write("Makefile", "")
            for number in range(3000):
                path = self.project / f"dir-{marker}-{number % 60}" / str(number)
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"{marker} {number}\n" * 20)
            self.manager.new_turn()
            with self.assertLogs("piton.checkpoints", "WARNING") as logged:
                self.assertFalse(self.manager.ensure_checkpoint(self.dir, f"late {marker}"))
            self.assertIn("background", logged.output[0])
            self.within_a_minute(lambda: self.wait_for_checkpoint(f"late {marker}"))
        with piton.Client(base=self.base) as client:
            log = client.call("status")
        self.assertIn("deadline_ms", str(log))

    def wait_for_checkpoint(self, reason):
        while reason not in [row["reason"] for row in self.manager.list_checkpoints(self.dir)]:
            time.sleep(0.05)

    def test_a_limit_of_the_caller_is_above_the_configuration_and_only_that_limit(self):
        self.configure("max_snapshots: 9", "max_file_size_mb: 1")
        self.write("large", "x" * (1 << 20) + "x")
        manager = checkpoints.CheckpointManager(enabled=True, max_snapshots=2)
        later = checkpoints.CheckpointManager(enabled=True)
        self.assertEqual((later.max_snapshots, later.max_total_size_mb, later.max_file_size_mb), (20, 500, 10))
        for at in range(4):
            self.write("a.txt", str(at))
            manager.new_turn()
            self.assertTrue(manager.ensure_checkpoint(self.dir, str(at)))
        self.assertEqual(len(later.list_checkpoints(self.dir)), 2)
        self.assertEqual(self.files_of_the_newest_checkpoint(), ["a.txt"])
        later.max_file_size_mb = 2
        self.assertTrue(later.ensure_checkpoint(self.dir))
        self.assertEqual(self.files_of_the_newest_checkpoint(), ["a.txt", "large"])

    def test_a_configuration_that_cannot_be_used_is_logged(self):
        self.configure("max_files: many")
        with self.assertLogs("piton.checkpoints", "WARNING") as logged:
            self.assertFalse(self.manager.ensure_checkpoint(self.dir))
        self.assertIn("max_files", logged.output[0])

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

    def test_the_project_of_a_file_is_never_the_home_directory(self):
        for name in ("Makefile", "loose/f", "../Makefile"):
            path = self.project / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("")
        with mock.patch.dict(os.environ, HOME=self.dir):
            self.assertEqual(self.manager.get_working_dir_for_path(str(self.project / "loose/f")), str(self.project / "loose"))
            self.assertEqual(self.manager.get_working_dir_for_path("~/f"), self.dir)


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class TypesTest(Case):
    def test_the_package_and_its_use_pass_the_type_checker(self):
        self.write("use.py", "import piton\nwith piton.Client() as client:\n    rows: int = len(client.list('.', limit=1))\n")
        # Results are JSON, which has no types.
        command = [sys.executable, "-m", "mypy", "--strict", "--no-warn-return-any", "--cache-dir", str(self.base)]
        command += [str(Path(piton.__file__).parent), str(self.project / "use.py")]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)


class InstallerTest(Case):
    SCRIPT = Path(__file__).resolve().parents[2] / "install.sh"

    def install(self, *options, **variables):
        """Runs the installer with a source that has no release, so that nothing is ever installed."""
        variables = {"PATH": os.environ["PATH"], **variables}
        command = ["sh", str(self.SCRIPT), "--from", str(self.project), *options]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def release(self, program):
        """Makes a release with this text as the program, and returns the arguments that install it below `prefix`."""
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)
        name = f"piton-9-{machine}-{'macos' if sys.platform == 'darwin' else 'linux'}"
        source = self.project / "release"
        shutil.rmtree(source, ignore_errors=True)
        for path, text in (("bin/piton", program), ("share/man/man1/piton.1", "manual")):
            (source / name / path).parent.mkdir(parents=True)
            (source / name / path).write_text(text)
        (source / name / "bin/piton").chmod(0o755)
        archive = Path(shutil.make_archive(str(source / name), "gztar", source, name))
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        (source / "SHA256SUMS").write_text(f"{digest}  {archive.name}\n")
        return ["--from", str(source), "--to", str(self.prefix)]

    def setUp(self):
        super().setUp()
        self.prefix = self.project.parent / "prefix"

    def installed(self):
        return sorted(str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file())

    def test_a_part_of_the_script_does_nothing(self):
        text, options = self.SCRIPT.read_text(), self.release("#!/bin/sh\necho piton 9\n")
        lines = text.splitlines(keepends=True)
        for count in range(len(lines)):
            done = subprocess.run(["sh", "-s", "--", *options], input="".join(lines[:count]), capture_output=True, text=True)
            self.assertEqual((done.stdout, self.prefix.exists()), ("", False), count)
        done = subprocess.run(["sh", "-s", "--", *options], input=text, capture_output=True, text=True)
        self.assertIn(f"Installed piton 9 in {self.prefix}/bin", done.stdout, done.stderr)
        self.assertEqual(self.installed(), ["bin/piton", "share/man/man1/piton.1"])

    def test_a_program_that_does_not_run_replaces_nothing(self):
        subprocess.run(["sh", str(self.SCRIPT), *self.release("#!/bin/sh\necho piton 9\n")], check=True, capture_output=True)
        shutil.rmtree(self.prefix / "share")
        done = subprocess.run(["sh", str(self.SCRIPT), *self.release("#!/bin/sh\nexit 1\n")], capture_output=True, text=True)
        self.assertIn("piton does not run on this machine, or in ", done.stderr)
        self.assertEqual((done.returncode, self.installed()), (1, ["bin/piton"]))
        self.assertIn("echo piton 9", (self.prefix / "bin/piton").read_text())

    def test_the_temporary_directory_may_forbid_programs(self):
        place = self.project.parent / "noexec"
        place.mkdir()
        mounted = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o noexec none "$0" && exec "$@"', str(place)]
        try:
            subprocess.run([*mounted, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            if os.environ.get("PITON_TEST_ALL"):
                raise
            self.skipTest(f"cannot mount: {error}")
        command = [*mounted, "sh", str(self.SCRIPT), *self.release("#!/bin/sh\necho piton 9\n")]
        done = subprocess.run(command, env={**os.environ, "TMPDIR": str(place)}, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.installed(), ["bin/piton", "share/man/man1/piton.1"])

    def test_without_a_home_directory_or_prefix_nothing_is_installed_below_the_root(self):
        for variables in ({}, {"HOME": ""}):
            self.assertIn("install.sh: HOME is not set; name the directory with --to PREFIX", self.install(**variables))
            self.assertIn("SHA256SUMS", self.install("--to", self.temp.name, **variables))
        self.assertIn("install.sh: --to needs a value", self.install("--to", "", HOME=self.temp.name))
        self.assertIn("install.sh: --from needs a value", self.install("--from", "", HOME=self.temp.name))
        self.assertIn("SHA256SUMS", self.install(HOME=self.temp.name))


if __name__ == "__main__":
    unittest.main()
