// Written by `piton install opencode`, removed by `piton uninstall opencode`. What is changed here is lost on the next install.
// Tells piton of each session that begins, of each prompt and of each tool call before it runs, and waits until the files are
// safe. At the end of a turn piton is told, too. If piton answers at a prompt, the model is told: that is how it learns which files the user has rolled back. It never
// throws: whatever goes wrong, the prompt and the tool go on.
import { spawn } from "node:child_process";

const COMMAND = @COMMAND@;
const DEADLINE_MS = @DEADLINE_MS@;

const ANSWER_MAX = 1 << 20;

// Returns what piton wrote to its standard output, at the latest when the time is up.
function tell(event) {
  return new Promise((resolve) => {
    let said = "";
    try {
      const text = JSON.stringify(event);
      const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"] });
      const timer = setTimeout(() => {
        try {
          child.kill();
          child.stdout.destroy();
        } catch {}
        resolve("");
      }, DEADLINE_MS);
      const done = () => {
        clearTimeout(timer);
        resolve(said);
      };
      child.on("error", done);
      child.on("close", done);
      child.stdin.on("error", () => {});
      child.stdout.on("error", () => {});
      child.stdout.setEncoding("utf8");
      child.stdout.on("data", (piece) => {
        if (said.length < ANSWER_MAX) said += piece;
      });
      child.stdin.end(text);
    } catch {
      resolve("");
    }
  });
}

// Adds the text of an answer to a prompt, for the model and not for the screen. Parts are sorted by their ids: this one comes
// after the last.
function addContext(said, input, output) {
  try {
    const text = JSON.parse(said).context;
    const { message, parts } = output;
    if (typeof text !== "string" || !text || !Array.isArray(parts)) return;
    const sessionID = message.sessionID ?? input.sessionID;
    const id = `${parts.at(-1)?.id ?? message.id.replace(/^msg/, "prt")}piton`;
    parts.push({ id, messageID: message.id, sessionID, type: "text", text, synthetic: true });
  } catch {}
}

export const Piton = async (context) => {
  const { directory, worktree } = context ?? {};
  const pass = (hook_event_name, input, output) => tell({ hook_event_name, directory, worktree, input, output });
  // A subagent has a session of its own; only its creation says for whom it works. A session is idle at the end of a turn.
  const event = async (input) => {
    const event = input?.event;
    if (event?.type === "session.created" || event?.type === "session.idle") {
      await tell({ hook_event_name: `event:${event.type}`, directory, worktree, event });
    }
  };
  const prompt = async (input, output) => {
    addContext(await pass("chat.message", input, output), input, output);
  };
  const tool = async (input, output) => {
    await pass("tool.execute.before", input, output);
  };
  return { event, "chat.message": prompt, "tool.execute.before": tool };
};
