// A client of `piton serve`: starts the program, and calls its methods. No dependencies.
import {spawn} from "node:child_process";
import {createRequire} from "node:module";
import {dirname, join, resolve} from "node:path";

/** Version of the protocol that this client speaks. */
export const PROTOCOL = 1;

/** A request that failed. `kind` is a word of the contract, such as `not_found` or `busy`. */
export class PitonError extends Error {
  constructor(message, kind = "other", hint = null, code = 0) {
    super(hint ? `${message} (hint: ${hint})` : message);
    this.name = "PitonError";
    Object.assign(this, {kind, hint, code});
  }
}

/** Returns `$PITON`, else the program of the package for this platform, else null. */
export function ownProgram() {
  if (process.env.PITON) return process.env.PITON;
  try {
    const found = createRequire(import.meta.url).resolve(`piton-${process.platform}-${process.arch}/package.json`);
    return join(dirname(found), "bin", "piton");
  } catch {
    return null;
  }
}

/** Returns the path of the program: `$PITON`, else that of the package for this platform, else `piton` on the search path. */
export function findProgram() {
  return ownProgram() ?? "piton";
}

/** Limit of a line in bytes, if the server names none. */
const LINE_BYTES = 16 << 20;
/** Depth from which on a server may refuse to read a message. */
const DEPTH = 100;

/** Returns a message as a line. Lone surrogates, which are not Unicode, become replacement characters. */
function encode(message) {
  const text = JSON.stringify({jsonrpc: "2.0", ...message});
  return text.replace(/\\(?:ud[89a-f][0-9a-f]{2}|.)/g, (escape) => (escape.length === 6 ? "\ufffd" : escape));
}

function isDeep(value, levels = DEPTH) {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeep(inner, levels - 1));
}

/** A running `piton serve`. Call `close` when done. */
export class Client {
  #child;
  #pending = new Map();
  #last = 0;
  #failure = null;
  #ended;
  #isBegun = false;
  #onWarning;

  constructor({program, base, config, env, onWarning} = {}) {
    const args = [...(base ? ["--base", base] : []), ...(config ? ["--config", config] : []), "serve"];
    this.#onWarning = onWarning;
    const path = program ?? findProgram();
    // Ctrl-C in the terminal is for the program, which may go on: it interrupts a turn of an agent. Hence a session of its own.
    const child = spawn(path, args, {stdio: ["pipe", "pipe", "ignore"], env: {...process.env, ...env}, detached: true});
    this.#child = child;
    child.stdin.on("error", () => {});
    this.#ended = new Promise((done) => {
      child.on("error", (error) => {
        this.#fail(new PitonError(`cannot start ${path}: ${error.message}`, "io"));
        done(null);
      });
      child.on("close", (code) => {
        const why = this.#isBegun ? "the server has ended" : `cannot start ${path}: it ended with code ${code} before it answered`;
        this.#fail(new PitonError(why, "io"));
        done(code);
      });
    });
    this.#readLines(child.stdout);
  }

  /** Starts a server, and agrees on the version of the protocol. */
  static async start(options) {
    const client = new Client(options);
    client.server = await client.call("initialize", {protocol: PROTOCOL});
    return client;
  }

  #fail(failure) {
    this.#failure ??= failure;
    this.#failPending(failure);
  }

  #failPending(failure) {
    for (const {reject, forget} of this.#pending.values()) {
      forget();
      reject(failure);
    }
    this.#pending.clear();
  }

  /** Splits the output at line feeds alone: `node:readline` also splits at U+2028 and U+2029, which JSON may have in strings. */
  #readLines(stdout) {
    let pieces = [];
    stdout.on("data", (chunk) => {
      let from = 0;
      for (let end; (end = chunk.indexOf(0x0a, from)) !== -1; from = end + 1) {
        const line = Buffer.concat([...pieces, chunk.subarray(from, end)]).toString();
        pieces = [];
        this.#receive(line);
      }
      if (from < chunk.length) pieces.push(chunk.subarray(from));
    });
  }

  #receive(line) {
    if (line.trim() === "") return;
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      // It may have been the answer to any request.
      return this.#failPending(new PitonError(`cannot read an answer, which is not JSON: ${line.slice(0, 80)}`, "io"));
    }
    if (typeof message !== "object" || message === null) return;
    if (message.method !== undefined) return this.#notified(message.method, message.params ?? {});
    this.#isBegun = true;
    for (const pending of this.#answered(message.id)) {
      pending.forget();
      if (!message.error) {
        pending.resolve(message.result);
        continue;
      }
      const {message: text, code, data} = message.error;
      pending.reject(new PitonError(text, data?.kind, data?.hint, code));
    }
  }

  #notified(method, params) {
    try {
      if (method === "progress") this.#pending.get(params.id)?.onProgress?.(params);
      if (method === "warning" && params.message !== undefined) this.#onWarning?.(params.message);
    } catch (error) {
      // Thrown from here, it would end the process.
      process.emitWarning(error instanceof Error ? error : String(error));
    }
  }

  /** Removes the requests that an answer is for. Without an id it is for a message that the server could not read: for those that
   * are nested deeply, or for any. */
  #answered(id) {
    let ids = this.#pending.has(id) ? [id] : [];
    if (id === null) {
      const all = [...this.#pending.keys()];
      const deep = all.filter((one) => this.#pending.get(one).isDeep);
      ids = deep.length > 0 ? deep : all;
    }
    const answered = ids.map((one) => this.#pending.get(one));
    ids.forEach((one) => this.#pending.delete(one));
    return answered;
  }

  #send(line) {
    this.#child.stdin.write(`${line}\n`);
  }

  /** Calls a method, and returns its result. Fails with `PitonError`. `signal` cancels the request. Text that is not Unicode is sent
   * with replacement characters. */
  call(method, params = {}, {onProgress, signal} = {}) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      const line = encode({id, method, params: onProgress ? {...params, progress: true} : params});
      const [bytes, bytesMax] = [Buffer.byteLength(line), this.server?.limits?.line_bytes ?? LINE_BYTES];
      if (bytes > bytesMax) throw new PitonError(`cannot send a message of ${bytes} bytes: the limit is ${bytesMax}`, "usage");
      const cancel = () => this.#send(encode({method: "$/cancelRequest", params: {id}}));
      // A signal may be that of many calls.
      const forget = () => signal?.removeEventListener("abort", cancel);
      this.#pending.set(id, {resolve, reject, forget, onProgress, isDeep: isDeep(params)});
      this.#send(line);
      if (signal?.aborted) cancel();
      else signal?.addEventListener("abort", cancel, {once: true});
    });
  }

  #in(directory, params) {
    return {directory: resolve(directory), ...params};
  }

  take(directory, reason) {
    return this.call("take", this.#in(directory, reason === undefined ? {} : {reason}));
  }

  list(directory, params = {}) {
    return this.call("list", this.#in(directory, params));
  }

  diff(directory, params = {}) {
    return this.call("diff", this.#in(directory, params));
  }

  restore(directory, checkpoint, params = {}) {
    return this.call("restore", this.#in(directory, {checkpoint, ...params}));
  }

  undo(directory, params = {}) {
    return this.call("undo", this.#in(directory, params));
  }

  revert(directory, turn, params = {}) {
    return this.call("revert", this.#in(directory, {turn, ...params}));
  }

  turns(directory, params = {}) {
    return this.call("turns", this.#in(directory, params));
  }

  /** Reports an event of an agent. `protected` in the result is false if a checkpoint is missing. */
  event(directory, event, fields = {}) {
    return this.call("event", {payload: {event, cwd: resolve(directory), ...fields}});
  }

  /** Ends the server, after the requests that it has begun. Returns its exit code. */
  close() {
    this.#child.stdin.end();
    return this.#ended;
  }
}
