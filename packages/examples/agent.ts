// An agent loop with rollback per turn. `node agent.ts DIR`; type a prompt, `undo` to take the last turn back, or `quit`.
import {spawnSync} from "node:child_process";
import {randomUUID} from "node:crypto";
import {createInterface} from "node:readline";
import {Client} from "piton";

const directory: string = process.argv[2] ?? ".";
const session: string = randomUUID();

/** The agent's turn. A real one asks a model; this one runs the prompt in the shell. */
function work(prompt: string): void {
  spawnSync(prompt, {shell: true, cwd: directory, stdio: "inherit"});
}

const client = await Client.start();
const turns: string[] = [];
for await (const line of createInterface({input: process.stdin})) {
  const prompt: string = line.trim();
  if (prompt === "quit") break;
  if (prompt === "undo") {
    const last = turns.pop();
    try {
      if (last === undefined) throw new Error("nothing to undo");
      const report = await client.revert(directory, last);
      console.log(`${report.outcome}: ${report.written} written, ${report.removed} removed`);
    } catch (error) {
      console.log(String(error));
    }
    continue;
  }
  const turn: string = randomUUID();
  const begun = await client.event(directory, "prompt", {session_id: session, turn_id: turn, prompt});
  if (!begun.protected) console.log(`not protected: ${begun.missed}`);
  work(prompt);
  await client.event(directory, "turn_end", {session_id: session, turn_id: turn});
  turns.push(turn);
  const [changed] = await client.turns(directory, {limit: 1});
  console.log(changed?.missed ? `no checkpoint: ${changed.missed}` : `${changed?.files_changed} files changed`);
}
await client.close();
