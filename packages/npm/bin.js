#!/usr/bin/env node
// Runs the program of this platform, with the same arguments and streams.
import {spawn} from "node:child_process";
import {constants} from "node:os";
import {ownProgram} from "./index.js";

// Not `piton` on the search path, which may be this file.
const program = ownProgram();
if (!program) {
  console.error(`error: the package piton-${process.platform}-${process.arch}, which has the program, is not installed`);
  console.error("hint: npm leaves it out with --omit=optional, and where there is none for the platform; PITON names another program");
  process.exit(1);
}
// The terminal sends these to the program, too, which may go on. The others reach the wrapper alone.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
const child = spawn(program, process.argv.slice(2), {stdio: "inherit"});
child.on("error", (error) => {
  // Also emitted if a signal cannot be sent.
  if (child.pid !== undefined) return;
  console.error(`error: cannot start piton: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Signals that Node ignores.
  process.exitCode = 128 + constants.signals[signal];
});
