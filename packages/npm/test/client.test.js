// Tests of the client, with the real program: `node --test`.
import assert from "node:assert/strict";
import {createRequire} from "node:module";
import {spawn, spawnSync} from "node:child_process";
import {getEventListeners} from "node:events";
import {chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {dirname, join} from "node:path";
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

/** Runs `work` with a client of a server that runs these lines for every message but the first. */
async function withFake(lines, work, onWarning) {
  const root = mkdtempSync(join(tmpdir(), "piton-npm-"));
  const program = join(root, "fake.cjs");
  const text = `#!${process.execPath}
    const seen = [];
    const say = (message) => console.log(JSON.stringify(message));
    require("node:readline").createInterface({input: process.stdin}).on("line", (line) => {
      const {id, method} = JSON.parse(line);
      if (method === "initialize") return say({id, result: {}});
      seen.push(id);
      ${lines}
    });`;
  writeFileSync(program, text);
  chmodSync(program, 0o755);
  const client = await Client.start({program, onWarning});
  try {
    await work(client);
  } finally {
    await client.close();
    rmSync(root, {recursive: true});
  }
}

const nested = (depth) => (depth === 0 ? "x" : [nested(depth - 1)]);

test("texts that are not Unicode are sent with replacements", {timeout: 60_000}, () =>
  withProject(async (client, dir) => {
    const half = "fix 😀".slice(0, 5);
    await client.take(dir, `\\ud83d ${half}`);
    assert.equal((await client.list(dir))[0].reason, "\\ud83d fix \ufffd");
    const begun = await client.event(dir, "prompt", {session_id: "s", turn_id: "t", prompt: half, [half]: 1});
    assert.equal(begun.protected, true);
  }));

test("a message that is too large or too deep is an error", {timeout: 60_000}, () =>
  withProject(async (client, dir) => {
    for (const content of ["x".repeat(17 << 20), nested(500)]) {
      await assert.rejects(client.event(dir, "before_tool", {tool_input: {content}}), {name: "PitonError", kind: "usage"});
    }
    await assert.rejects(client.call("take", {directory: dir, reason: 10n}), TypeError);
    assert.equal((await client.take(dir)).outcome, "taken");
  }));

test("an answer may contain the line separators of Unicode", {timeout: 60_000}, () =>
  withFake(`say({id, result: "a\\u2028b\\u2029c\\r\\n"});`, async (client) => {
    assert.equal(await client.call("plain"), "a\u2028b\u2029c\r\n");
    assert.equal(await client.call("plain"), "a\u2028b\u2029c\r\n");
  }));

test("the diff of a file with the line separators of Unicode", {timeout: 60_000}, () =>
  withProject(async (client, dir) => {
    await client.take(dir);
    writeFileSync(join(dir, "a.txt"), "a\u2028b\u2029c\n");
    assert.match((await client.diff(dir)).diff, /\+a\u2028b\u2029c\n/);
  }));

test("answers that come in pieces are put together", {timeout: 60_000}, () =>
  withFake(
    `const bytes = Buffer.from(JSON.stringify({id, result: "\u00e9"}) + "\\n\\n");
     const write = (at) => at < bytes.length && process.stdout.write(bytes.subarray(at, at + 1), () => setImmediate(write, at + 1));
     write(0);`,
    async (client) => assert.equal(await client.call("plain"), "\u00e9"),
  ));

test("a line that is not JSON fails the calls that wait", {timeout: 60_000}, () =>
  withFake(`if (seen.length === 2) console.log("{no json"); if (seen.length > 2) say({id, result: "fine"});`, async (client) => {
    const failed = {name: "PitonError", kind: "io", message: "cannot read an answer, which is not JSON: {no json"};
    await Promise.all([assert.rejects(client.call("one"), failed), assert.rejects(client.call("two"), failed)]);
    assert.equal(await client.call("three"), "fine");
  }));

test("callbacks that throw do not end the process or the client", {timeout: 60_000}, () => {
  const notify = (method) => `say({method: "${method}", params: {id, message: "x"}});`;
  const odd = `console.log("7\\nnull\\n[]"); say({method: "progress"}); say({method: "warning"});`;
  return withFake(
    `${notify("progress")} ${notify("warning")} ${odd} say({id, result: "done"});`,
    async (client) => {
      const failures = [];
      const emitted = new Promise((done) => process.on("warning", (warning) => failures.push(warning.message) === 3 && done()));
      const throwing = () => {
        throw new Error("in a callback");
      };
      assert.equal(await client.call("work", {}, {onProgress: throwing}), "done");
      assert.equal(await client.call("work"), "done");
      await emitted;
      assert.ok(failures.every((text) => text.includes("in a callback")), failures);
    },
    () => {
      throw new Error("in a callback");
    },
  );
});

const REFUSAL = `say({id: null, error: {code: -32700, message: "not JSON", data: {kind: "usage"}}});`;

test("an answer without an id fails the request that it can be for", {timeout: 60_000}, async () => {
  await withFake(`if (seen.length === 2) { ${REFUSAL} say({id: seen[0], result: "plain"}); }`, async (client) => {
    const plain = client.call("plain");
    await assert.rejects(client.call("deep", {content: nested(120)}), {kind: "usage", code: -32700});
    assert.equal(await plain, "plain");
  });
  await withFake(REFUSAL, (client) => assert.rejects(client.call("plain"), {kind: "usage", code: -32700}));
});

test("the types have every parameter of the contract, and what the server says", () =>
  withProject(async (client) => {
    const types = readFileSync(join(dirname(createRequire(import.meta.url).resolve("piton/package.json")), "index.d.ts"), "utf8");
    const declared = (name) => {
      const [, body] = types.match(new RegExp(`export (?:interface|class) ${name} [^{]*{\n(.*?)\n}`, "s")) ?? assert.fail(name);
      return [...body.matchAll(/^  (\w+)[?]?[:(]/gm)].map(([, key]) => key).sort();
    };
    const {methods} = await client.call("rpc.discover");
    const apart = ["directory", "directory_bytes", "progress"];
    const positional = {restore: ["checkpoint"], revert: ["turn"]};
    for (const name of ["list", "diff", "restore", "undo", "revert", "turns"]) {
      const {params} = methods.find((method) => method.name === name);
      const wanted = params.map((param) => param.name).filter((key) => ![...apart, ...(positional[name] ?? [])].includes(key));
      const type = `${name[0].toUpperCase()}${name.slice(1)}Params`;
      assert.deepEqual(declared(type), wanted.sort(), type);
      assert.match(types, new RegExp(`^  ${name}\\(.*params\\?: ${type}\\)`, "m"));
    }
    assert.deepEqual(declared("ServerInfo"), Object.keys(client.server).sort());
    assert.deepEqual(declared("ServerLimits"), Object.keys(client.server.limits).sort());
    assert.deepEqual(declared("PitonError"), ["code", "constructor", "hint", "kind"]);
  }));

test("an interrupt in the terminal does not end the server", {timeout: 60_000}, async () => {
  const root = mkdtempSync(join(tmpdir(), "piton-npm-"));
  const own = createRequire(import.meta.url).resolve("piton");
  const text = `
    import {Client} from ${JSON.stringify(own)};
    process.on("SIGINT", () => {});
    const client = await Client.start({base: ${JSON.stringify(join(root, "base"))}, config: "/dev/null"});
    process.kill(-process.pid, "SIGINT");
    console.log((await client.list(${JSON.stringify(root)})).length);
    await client.close();`;
  writeFileSync(join(root, "interrupted.mjs"), text);
  const child = spawn(process.execPath, [join(root, "interrupted.mjs")], {detached: true, stdio: ["ignore", "pipe", "inherit"]});
  let said = "";
  for await (const chunk of child.stdout) said += chunk;
  rmSync(root, {recursive: true});
  assert.equal(said, "0\n");
});

test("a program that is no server is named", async () => {
  for (const [program, words] of [["/no/such/program", "ENOENT"], ["false", "code 1"], ["true", "code 0"]]) {
    const named = (error) => error.kind === "io" && error.message.startsWith(`cannot start ${program}: `) && error.message.includes(words);
    await assert.rejects(Client.start({program}), named, program);
  }
});

test("a signal keeps no listener of a call that is done", () =>
  withProject(async (client, dir) => {
    const {signal} = new AbortController();
    await client.call("list", {directory: dir}, {signal});
    await assert.rejects(client.call("no such", {}, {signal}));
    assert.deepEqual(getEventListeners(signal, "abort"), []);
  }));

test("without the package of the platform, the command is an error, and does not start itself", {timeout: 60_000}, () => {
  const root = mkdtempSync(join(tmpdir(), "piton-npm-"));
  const own = dirname(createRequire(import.meta.url).resolve("piton/package.json"));
  for (const name of ["package.json", "index.js", "bin.js"]) copyFileSync(join(own, name), join(root, name));
  // As npm installs it.
  symlinkSync("bin.js", join(root, "piton"));
  chmodSync(join(root, "bin.js"), 0o755);
  const {PITON: _, ...env} = process.env;
  const path = `${root}:${env.PATH}`;
  const done = spawnSync(join(root, "piton"), ["--version"], {env: {...env, PATH: path}, encoding: "utf8", timeout: 30_000});
  rmSync(root, {recursive: true});
  assert.equal(done.status, 1, done.error);
  assert.match(done.stderr, /^error: the package piton-\S+, which has the program, is not installed\n/);
});

/** Runs the command with a program of these lines. Calls `work` with the process once the program says `ready`, and returns what
 * the program said and how the command ended. */
async function withCommand(lines, work) {
  const root = mkdtempSync(join(tmpdir(), "piton-npm-"));
  const program = join(root, "fake.cjs");
  writeFileSync(program, `#!${process.execPath}\n${lines}\nconsole.log("ready");\n`);
  chmodSync(program, 0o755);
  const command = join(dirname(createRequire(import.meta.url).resolve("piton/package.json")), "bin.js");
  const env = {...process.env, PITON: program};
  const child = spawn(process.execPath, [command], {env, detached: true, stdio: ["ignore", "pipe", "inherit"]});
  const ended = new Promise((done) => child.on("close", (code, signal) => done({code, signal})));
  let said = "";
  for await (const chunk of child.stdout) {
    said += chunk;
    if (chunk.includes("ready")) work(child);
  }
  const {code, signal} = await ended;
  rmSync(root, {recursive: true});
  return {said, code, signal};
}

test("an interrupt in the terminal ends the command only when the program ends", {timeout: 60_000}, async () => {
  for (const name of ["SIGINT", "SIGQUIT"]) {
    const lines = `const on = setInterval(() => {}, 1000);
      process.on("${name}", () => setTimeout(() => { console.log("done"); clearInterval(on); process.exitCode = 7; }, 300));`;
    const done = await withCommand(lines, (child) => process.kill(-child.pid, name));
    assert.deepEqual(done, {said: "ready\ndone\n", code: 7, signal: null}, name);
  }
});

test("a signal for the command ends the program", {timeout: 60_000}, async () => {
  for (const name of ["SIGTERM", "SIGHUP"]) {
    const lines = `const on = setInterval(() => {}, 1000);
      process.on("${name}", () => { console.log("done"); clearInterval(on); process.exitCode = 7; });`;
    const done = await withCommand(lines, (child) => child.kill(name));
    assert.deepEqual(done, {said: "ready\ndone\n", code: 7, signal: null}, name);
    const ended = await withCommand("setInterval(() => {}, 1000);", (child) => child.kill(name));
    assert.deepEqual(ended, {said: "ready\n", code: null, signal: name});
  }
});

test("the command ends as the program does", {timeout: 60_000}, async () => {
  for (const name of ["SIGKILL", "SIGINT"]) {
    const done = await withCommand(`setImmediate(() => process.kill(process.pid, "${name}"));`, () => {});
    assert.deepEqual(done, {said: "ready\n", code: null, signal: name});
  }
  assert.deepEqual(await withCommand("process.exitCode = 3;", () => {}), {said: "ready\n", code: 3, signal: null});
});
