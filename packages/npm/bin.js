#!/usr/bin/env node
// Runs the program of this platform, with the same arguments and streams.
import {spawnSync} from "node:child_process";
import {findProgram} from "./index.js";

const done = spawnSync(findProgram(), process.argv.slice(2), {stdio: "inherit"});
if (done.error) {
  console.error(`error: cannot start piton: ${done.error.message}`);
  process.exit(1);
}
if (done.signal) process.kill(process.pid, done.signal);
process.exit(done.status ?? 1);
