// Tests of the client, with the real program: `node --test`.
import assert from "node:assert/strict";
import {mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync, mkdirSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {test} from "node:test";
import {Client, PitonError} from "piton";

async function withProject(work) {
  const root = mkdtempSync(join(tmpdir(), "piton-npm-"));
  const dir = join(root, "project");
  mkdirSync(dir);
  writeFileSync(join(dir, "a.txt"), "one\n");
  const client = await Client.start({base: join(root, "base"), config: "/dev/null"});
  try {
    await work(client, dir);
  } finally {
    assert.equal(await client.close(), 0);
    rmSync(root, {recursive: true});
  }
}

test("take, restore and undo", () =>
  withProject(async (client, dir) => {
    assert.equal((await client.take(dir, "first")).outcome, "taken");
    writeFileSync(join(dir, "a.txt"), "two\n");
    writeFileSync(join(dir, "new.txt"), "new\n");
    assert.equal((await client.diff(dir)).files_changed, 2);
    assert.deepEqual((await client.restore(dir, 1, {dry_run: true})).remove, ["new.txt"]);
    assert.equal((await client.restore(dir, 1)).outcome, "restored");
    assert.deepEqual(readdirSync(dir), ["a.txt"]);
    await client.undo(dir);
    assert.equal(readFileSync(join(dir, "a.txt"), "utf8"), "two\n");
    assert.equal((await client.list(dir)).at(-1).reason, "first");
  }));

test("one turn is taken back", () =>
  withProject(async (client, dir) => {
    for (const turn of ["t1", "t2"]) {
      const begun = await client.event(dir, "prompt", {session_id: "s", turn_id: turn, prompt: turn});
      assert.equal(begun.protected, true);
      writeFileSync(join(dir, `${turn}.txt`), turn);
      await client.event(dir, "turn_end", {session_id: "s", turn_id: turn});
    }
    assert.deepEqual((await client.turns(dir)).map(({turn}) => turn), ["t2", "t1"]);
    await client.revert(dir, "t1");
    assert.deepEqual(readdirSync(dir), ["a.txt", "t2.txt"]);
  }));

test("errors, and many requests at a time", () =>
  withProject(async (client, dir) => {
    await assert.rejects(client.restore(dir, 7), (error) => error instanceof PitonError && error.kind === "not_found" && !!error.hint);
    await assert.rejects(client.call("no such"), {code: -32601});
    await client.take(dir);
    const lists = await Promise.all(Array.from({length: 30}, () => client.list(dir)));
    assert.ok(lists.every((list) => list.length === 1));
  }));

test("a program that cannot be started is an error", async () => {
  await assert.rejects(Client.start({program: "/no/such/program"}), {kind: "io"});
});
