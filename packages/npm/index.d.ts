/** Version of the protocol that this client speaks. */
export const PROTOCOL: number;

/** A checkpoint: its number in the list, the beginning of its id, or its mark. */
export type Checkpoint = number | string;

/** Kind of an error: `usage`, `invalid`, `not_found`, `ambiguous`, `busy`, `damaged`, `not_ours`, `full`, `io`, `stopped`, ... */
export class PitonError extends Error {
  constructor(message: string, kind?: string, hint?: string | null, code?: number);
  kind: string;
  hint: string | null;
  code: number;
}

export interface Options {
  /** Path of the program. */
  program?: string;
  /** Directory that holds the store. */
  base?: string;
  /** Configuration file. */
  config?: string;
  env?: Record<string, string>;
  /** What it throws is passed to `process.emitWarning`. */
  onWarning?: (message: string) => void;
}

export interface CallOptions {
  /** What it throws is passed to `process.emitWarning`. */
  onProgress?: (progress: Progress) => void;
  /** Cancels the request. Work that cannot be left half done goes on to its end. */
  signal?: AbortSignal;
}

export interface Progress {
  message: string;
  files_found: number;
  bytes_to_read: number;
  bytes_read: number;
  files_to_write: number;
  files_written: number;
  bytes_to_write: number;
  bytes_written: number;
  store_bytes: number;
  store_bytes_done: number;
}

/** What the server says about itself. */
export interface ServerInfo {
  protocol: number;
  name: string;
  version: string;
  /** Directory that holds the store, if it was named. */
  base: string | null;
  methods: string[];
  limits: ServerLimits;
}

export interface ServerLimits {
  /** Length of a line. */
  line_bytes: number;
  /** Requests that are worked on at a time. */
  at_a_time: number;
  /** Further requests that may wait. */
  waiting: number;
  /** Size of their messages, in all. */
  waiting_bytes: number;
}

export interface ListParams {
  /** Number of checkpoints, newest first; 0, the default, is all. */
  limit?: number;
  all?: boolean;
  /** List the ends and steps of turns, too. */
  steps?: boolean;
  /** List the checkpoints of another machine, from the remote. */
  machine?: string;
  project?: string;
}

export interface DiffParams {
  from?: Checkpoint;
  /** Compare with this checkpoint, not with the files as they are. */
  to?: Checkpoint;
  paths?: string[];
  /** Exact bytes of the paths, escaped, for those that are not UTF-8. */
  paths_bytes?: (string | null)[];
  project?: string;
}

export interface RestoreParams {
  paths?: string[];
  /** Exact bytes of the paths, escaped, for those that are not UTF-8. */
  paths_bytes?: (string | null)[];
  /** Return the plan, and change nothing. */
  dry_run?: boolean;
  yes?: boolean;
  /** Move files that no checkpoint covers aside, instead of leaving them in the way. */
  force_uncovered?: boolean;
  /** Leave ignored files that are missing. */
  without_ignored?: boolean;
  /** Take back what other sessions did since, too. */
  across_sessions?: boolean;
  /** The session that asks: its own work may be taken back. */
  session?: string;
  project?: string;
  /** Take back what the turns since then did, and keep the user's own edits. */
  keep_edits?: boolean;
  /** With `keep_edits`: leave the files in which the user's edits are in the way. */
  skip_conflicts?: boolean;
  /** With `keep_edits`: take back edits that cannot be told apart from those of a turn, too. */
  with_own_edits?: boolean;
  /** Finish a restore that was cut short. */
  continue?: boolean;
  /** Go back to before a restore that was cut short. */
  abort?: boolean;
}

export interface UndoParams {
  dry_run?: boolean;
  yes?: boolean;
  force_uncovered?: boolean;
  without_ignored?: boolean;
  across_sessions?: boolean;
  session?: string;
}

export interface RevertParams {
  paths?: string[];
  /** Exact bytes of the paths, escaped, for those that are not UTF-8. */
  paths_bytes?: (string | null)[];
  /** Only the hunk of a file at a line of the file at the end of the turn: `FILE:LINE`. */
  hunk?: string[];
  hunk_bytes?: (string | null)[];
  /** Take back what does not conflict, and leave the rest. */
  skip_conflicts?: boolean;
  /** Take back a turn whose end was not reported, with the user's edits until the next prompt. */
  with_own_edits?: boolean;
  /** Take back what other sessions did at the same time, too. */
  across_sessions?: boolean;
  /** The agent, if prompts of several began from the checkpoint. */
  agent?: string;
  dry_run?: boolean;
  yes?: boolean;
}

export interface TurnsParams {
  /** Number of turns, newest first; 0, the default, is all. */
  limit?: number;
}

export interface TakeReport {
  outcome: "taken" | "unchanged" | "skipped";
  why: string | null;
  id: string | null;
  short_id: string | null;
  files: number;
  skipped: {path: string; path_bytes?: string; why: string}[];
  elapsed_ms: number;
  [key: string]: unknown;
}

export interface Row {
  number: number | null;
  id: string;
  short_id: string;
  time: string;
  reason: string;
  files_changed: number | null;
  insertions: number | null;
  deletions: number | null;
  session: string | null;
  turn: string | null;
  kind: string;
  [key: string]: unknown;
}

export interface RestoreReport {
  outcome: "restored" | "partly" | "nothing_to_do" | "conflict" | string;
  id: string | null;
  safety_id: string | null;
  written: number;
  removed: number;
  left: {path: string; path_bytes?: string; why: string}[];
  [key: string]: unknown;
}

export interface DiffReport {
  files_changed: number;
  insertions: number;
  deletions: number;
  files: {path: string; status: string; insertions: number; deletions: number; [key: string]: unknown}[];
  diff: string;
  [key: string]: unknown;
}

export interface Turn {
  row: number | null;
  turn: string;
  session: string | null;
  agent: string | null;
  prompt: string | null;
  files_changed: number | null;
  /** Why it has no checkpoint. */
  missed: string | null;
  [key: string]: unknown;
}

export interface EventReport {
  protected: boolean;
  missed: string | null;
  answer: string;
}

/** Returns the path of the program. */
export function findProgram(): string;

/** A running `piton serve`. */
export class Client {
  constructor(options?: Options);
  /** Starts a server, and agrees on the version of the protocol. */
  static start(options?: Options): Promise<Client>;
  server: ServerInfo;
  /** Calls any method of the contract (docs/schema/rpc.json). */
  call<T = unknown>(method: string, params?: Record<string, unknown>, options?: CallOptions): Promise<T>;
  take(directory: string, reason?: string): Promise<TakeReport>;
  list(directory: string, params?: ListParams): Promise<Row[]>;
  diff(directory: string, params?: DiffParams): Promise<DiffReport>;
  restore(directory: string, checkpoint: Checkpoint, params?: RestoreParams): Promise<RestoreReport>;
  undo(directory: string, params?: UndoParams): Promise<RestoreReport>;
  revert(directory: string, turn: Checkpoint, params?: RevertParams): Promise<RestoreReport>;
  turns(directory: string, params?: TurnsParams): Promise<Turn[]>;
  event(directory: string, event: string, fields?: Record<string, unknown>): Promise<EventReport>;
  /** Ends the server, after the requests that it has begun. */
  close(): Promise<number | null>;
}
