// Written by `piton install opencode`, removed by `piton uninstall opencode`. What is changed here is lost on the next install.
// Tells piton of each session that begins, of each prompt and of each tool call before it runs, and waits until the files are
// safe. It never throws and never answers: whatever goes wrong, the tool runs.
import { spawn } from "node:child_process";

const COMMAND = @COMMAND@;
const DEADLINE_MS = @DEADLINE_MS@;

function tell(event) {
  return new Promise((resolve) => {
    try {
      const text = JSON.stringify(event);
      const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "ignore", "ignore"] });
      const timer = setTimeout(() => {
        try {
          child.kill();
        } catch {}
        resolve();
      }, DEADLINE_MS);
      const done = () => {
        clearTimeout(timer);
        resolve();
      };
      child.on("error", done);
      child.on("exit", done);
      child.stdin.on("error", () => {});
      child.stdin.end(text);
    } catch {
      resolve();
    }
  });
}

export const Piton = async (context) => {
  const { directory, worktree } = context ?? {};
  const on = (hook_event_name) => async (input, output) => {
    await tell({ hook_event_name, directory, worktree, input, output });
  };
  // A subagent has a session of its own; only this says for whom it works.
  const event = async (input) => {
    const event = input?.event;
    if (event?.type === "session.created") {
      await tell({ hook_event_name: "event:session.created", directory, worktree, event });
    }
  };
  return { event, "chat.message": on("chat.message"), "tool.execute.before": on("tool.execute.before") };
};
