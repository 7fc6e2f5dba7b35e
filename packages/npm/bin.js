#!/usr/bin/env node
// Runs the program of this platform, with the same arguments and streams.
import {spawnSync} from "node:child_process";
import {ownProgram} from "./index.js";

// Not `piton` on the search path, which may be this file.
const program = ownProgram();
if (!program) {
  console.error(`error: the package piton-${process.platform}-${process.arch}, which has the program, is not installed`);
  console.error("hint: npm leaves it out with --omit=optional, and where there is none for the platform; PITON names another program");
  process.exit(1);
}
const done = spawnSync(program, process.argv.slice(2), {stdio: "inherit"});
if (done.error) {
  console.error(`error: cannot start piton: ${done.error.message}`);
  process.exit(1);
}
if (done.signal) process.kill(process.pid, done.signal);
process.exit(done.status ?? 1);
