/** Version of the protocol that this client speaks. */
export const PROTOCOL: number;

/** A checkpoint: its number in the list, the beginning of its id, or its mark. */
export type Checkpoint = number | string;

/** Kind of an error: `usage`, `invalid`, `not_found`, `ambiguous`, `busy`, `damaged`, `not_ours`, `full`, `io`, `stopped`, ... */
export class PitonError extends Error {
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
  onWarning?: (message: string) => void;
}

export interface CallOptions {
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
  server: {protocol: number; version: string; methods: string[]};
  /** Calls any method of the contract (docs/schema/rpc.json). */
  call<T = unknown>(method: string, params?: Record<string, unknown>, options?: CallOptions): Promise<T>;
  take(directory: string, reason?: string): Promise<TakeReport>;
  list(directory: string, params?: {limit?: number}): Promise<Row[]>;
  diff(directory: string, params?: {from?: Checkpoint; to?: Checkpoint; paths?: string[]}): Promise<DiffReport>;
  restore(directory: string, checkpoint: Checkpoint, params?: {paths?: string[]; dry_run?: boolean}): Promise<RestoreReport>;
  undo(directory: string, params?: Record<string, unknown>): Promise<RestoreReport>;
  revert(directory: string, turn: Checkpoint, params?: {paths?: string[]; dry_run?: boolean}): Promise<RestoreReport>;
  turns(directory: string, params?: {limit?: number}): Promise<Turn[]>;
  event(directory: string, event: string, fields?: Record<string, unknown>): Promise<EventReport>;
  /** Ends the server, after the requests that it has begun. */
  close(): Promise<number | null>;
}
