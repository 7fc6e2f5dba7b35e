// A client of `piton serve`: starts the program, and calls its methods. No dependencies.
import {spawn} from "node:child_process";
import {createRequire} from "node:module";
import {dirname, join, resolve} from "node:path";
import {createInterface} from "node:readline";

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

/** Returns the path of the program: `$PITON`, else that of the package for this platform, else `piton` on the search path. */
export function findProgram() {
  if (process.env.PITON) return process.env.PITON;
  try {
    const found = createRequire(import.meta.url).resolve(`piton-${process.platform}-${process.arch}/package.json`);
    return join(dirname(found), "bin", "piton");
  } catch {
    return "piton";
  }
}

/** A running `piton serve`. Call `close` when done. */
export class Client {
  #child;
  #pending = new Map();
  #last = 0;
  #failure = null;
  #ended;
  #onWarning;

  constructor({program, base, config, env, onWarning} = {}) {
    const args = [...(base ? ["--base", base] : []), ...(config ? ["--config", config] : []), "serve"];
    this.#onWarning = onWarning;
    const child = spawn(program ?? findProgram(), args, {stdio: ["pipe", "pipe", "ignore"], env: {...process.env, ...env}});
    this.#child = child;
    child.stdin.on("error", () => {});
    this.#ended = new Promise((done) => {
      child.on("error", (error) => {
        this.#fail(new PitonError(`cannot start piton: ${error.message}`, "io"));
        done(null);
      });
      child.on("close", (code) => {
        this.#fail(new PitonError("the server has ended", "io"));
        done(code);
      });
    });
    createInterface({input: child.stdout}).on("line", (line) => this.#receive(line));
  }

  /** Starts a server, and agrees on the version of the protocol. */
  static async start(options) {
    const client = new Client(options);
    client.server = await client.call("initialize", {protocol: PROTOCOL});
    return client;
  }

  #fail(failure) {
    this.#failure ??= failure;
    for (const {reject} of this.#pending.values()) reject(failure);
    this.#pending.clear();
  }

  #receive(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return;
    }
    const pending = this.#pending.get(message.id ?? message.params?.id);
    if (message.method === "progress") return pending?.onProgress?.(message.params);
    if (message.method === "warning") return this.#onWarning?.(message.params.message);
    if (!pending) return;
    this.#pending.delete(message.id);
    if (!message.error) return pending.resolve(message.result);
    const {message: text, code, data = {}} = message.error;
    pending.reject(new PitonError(text, data.kind, data.hint, code));
  }

  #send(message) {
    this.#child.stdin.write(`${JSON.stringify({jsonrpc: "2.0", ...message})}\n`);
  }

  /** Calls a method, and returns its result. Fails with `PitonError`. `signal` cancels the request. */
  call(method, params = {}, {onProgress, signal} = {}) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, {resolve, reject, onProgress});
      this.#send({id, method, params: onProgress ? {...params, progress: true} : params});
      const cancel = () => this.#send({method: "$/cancelRequest", params: {id}});
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
