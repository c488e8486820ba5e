// posenc.local(): a server for a block of code, on this machine.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "./client";
import { version } from "./contract";
import { checkKeys, PosencError } from "./errors";

export interface LocalOptions {
  /** Number of threads for computations. Default: one for each core. */
  threads?: number;
  /** Further flags of posencd, such as ["--log-calls=1"]. */
  flags?: readonly string[];
}

const prefix = "/dev/shm/posenc-local-";
// posencd starts within 20 ms, but a machine may be busy.
const longestStartMs = 30_000;
const longestEndMs = 10_000;
const longestDeathMs = 500;

/** A client with its own server. local() makes both. */
export class LocalClient extends Client {
  private closing?: Promise<void>;
  // Removes only the folder, because posencd ends by itself: its standard input ends when this process ends.
  private readonly atExit = () => fs.rmSync(this.folder, { recursive: true, force: true });

  /** Use local(). */
  constructor(
    private readonly process: ChildProcess,
    private readonly folder: string,
  ) {
    super(`unix:${folder}/socket`, {}, async () => {
      if (isRunning(process)) await Promise.race([once(process, "exit"), sleep(longestDeathMs, null, { ref: false })]);
      return isRunning(process) ? "" : `; ${endOf(process, folder)}; call posenc.local() again`;
    });
    globalThis.process.on("exit", this.atExit);
  }

  /** Ends the connections, and begins to end the server. */
  override close(): void {
    void this[Symbol.asyncDispose]();
  }

  /** Ends the connections and the server. */
  [Symbol.asyncDispose](): Promise<void> {
    super.close();
    return (this.closing ??= stop(this.process).then(() => {
      this.atExit();
      globalThis.process.off("exit", this.atExit);
    }));
  }
}

/**
 * Starts posencd, and ends it with its client:
 *
 *   await using client = await posenc.local();
 *   await posenc.local(async (client) => { ... });
 *
 * posencd is the file that the environment variable POSENCD names. Without this variable, posencd is the program of the
 * npm package `@posenc/server-PLATFORM`, or else the first posencd on PATH. The server does not get the variables
 * POSENC_..., which are meant for other servers and clients. The server listens on a unix socket in a folder of
 * /dev/shm that only this user may enter, and shares memory there (client.sharedRegion()).
 *
 * Each call starts another server. The server also ends when this process is killed: it reads a pipe that only this
 * process has open, and the kernel closes the pipe when this process ends. The server does not keep the program from
 * ending.
 *
 * Throws UNAVAILABLE if the server cannot be started; the text says what to do.
 */
export async function local(options?: LocalOptions): Promise<LocalClient>;
export async function local<T>(block: (client: LocalClient) => Promise<T> | T, options?: LocalOptions): Promise<T>;
export async function local<T>(
  first?: LocalOptions | ((client: LocalClient) => Promise<T> | T),
  second?: LocalOptions,
) {
  if (typeof first !== "function") return start(first ?? {});
  const client = await start(second ?? {});
  try {
    return await first(client);
  } finally {
    await client[Symbol.asyncDispose]();
  }
}

async function start(options: LocalOptions): Promise<LocalClient> {
  checkKeys(options, ["threads", "flags"], "options");
  const { threads, flags = [] } = options;
  const posencd = find();
  await removeLeftovers();
  const folder = privateFolder();
  let process: ChildProcess | undefined;
  try {
    const given = [...(threads === undefined ? [] : [`--threads=${threads}`]), ...flags];
    process = await spawned(posencd, folder, given);
    await ready(process, folder);
    return new LocalClient(process, folder);
  } catch (error) {
    if (process) await stop(process);
    fs.rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

const failure = (text: string) => new PosencError(`posenc.local(): ${text}`, { code: "UNAVAILABLE" });

function find(): string {
  if (process.env.POSENCD) return process.env.POSENCD;
  const name = `@posenc/server-${process.platform}-${process.arch}`;
  const install = `npm install ${name}@${version}`;
  let about: string | undefined;
  try {
    about = require.resolve(`${name}/package.json`);
  } catch {
    const found = (process.env.PATH ?? "").split(path.delimiter).map((folder) => path.join(folder, "posencd"));
    const posencd = found.find((file) => fs.existsSync(file));
    if (posencd !== undefined) return posencd;
    const packages = "the package is for Linux on x64 and arm64 with glibc 2.36 or newer";
    throw failure(`there is no posencd: ${install} (${packages}), or name one by POSENCD`);
  }
  const is = (JSON.parse(fs.readFileSync(about, "utf8")) as { version: string }).version;
  if (is !== version) throw failure(`posenc is ${version}, but ${name} is ${is}: ${install}`);
  return path.join(path.dirname(about), "posenc-programs");
}

function privateFolder(): string {
  try {
    return fs.mkdtempSync(prefix);
  } catch (error) {
    const remedy =
      "client and server share memory there: mount a tmpfs that this user may write, " +
      "or use posenc.connect() with a server that was started by hand";
    throw failure(`${path.dirname(prefix)}: ${(error as NodeJS.ErrnoException).code}; ${remedy}`);
  }
}

async function spawned(posencd: string, folder: string, flags: readonly string[]): Promise<ChildProcess> {
  const own = ["--exit-with-stdin", `--listen=unix:${folder}/socket`];
  own.push(`--shared-memory-prefix=${folder}/`, `--ready-file=${folder}/ready`);
  const others = Object.entries(process.env).filter(([name]) => !name.startsWith("POSENC_"));
  // The caller's flags override these variables.
  const defaults = { POSENC_DRAIN_TIMEOUT: "1s", POSENC_LOG_LEVEL: "warning", POSENC_LOG_FORMAT: "text" };
  const env = { ...Object.fromEntries(others), ...defaults };
  const log = fs.openSync(`${folder}/log`, "w");
  try {
    // The server has a session of its own (detached), so that Control-C at a terminal reaches only this process.
    const child = spawn(posencd, [...own, ...flags], {
      argv0: "posencd",
      stdio: ["pipe", log, log],
      env,
      detached: true,
    });
    await once(child, "spawn");
    child.stdin!.on("error", () => {}); // an error only means that the server has ended
    child.unref();
    (child.stdin as net.Socket).unref();
    return child;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    throw failure(`${posencd}: ${code}; ${remedy(posencd, code)}`);
  } finally {
    fs.closeSync(log);
  }
}

const wrongMachine = "is it a program for this machine? Name another by POSENCD";

function remedy(posencd: string, code: string): string {
  if (code === "EACCES")
    return "it must be executable, on a file system that is not mounted noexec; or name another by POSENCD";
  if (code === "ENOENT" && fs.existsSync(posencd))
    return "the file is there, but not its loader: it needs glibc, which musl systems such as Alpine lack";
  if (code === "ENOENT") return "POSENCD must name the server's program, or be unset";
  return wrongMachine;
}

const isRunning = ({ exitCode, signalCode }: ChildProcess) => exitCode === null && signalCode === null;

async function ready(process: ChildProcess, folder: string): Promise<void> {
  const deadline = Date.now() + longestStartMs;
  while (!fs.existsSync(`${folder}/ready`)) {
    if (!isRunning(process)) throw failure(endOf(process, folder));
    if (Date.now() > deadline)
      throw failure(`posencd is not ready after ${longestStartMs / 1000} s: is the machine too busy?`);
    await sleep(1);
  }
}

/** Returns how the server ended, with its last output. */
function endOf({ exitCode, signalCode, spawnfile }: ChildProcess, folder: string): string {
  const how = signalCode ? `was killed by signal ${os.constants.signals[signalCode]}` : `ended with code ${exitCode}`;
  const log = `${folder}/log`;
  let said = fs.existsSync(log) ? fs.readFileSync(log, "utf8").slice(-2000).trim() : "";
  if (said.includes("GLIBC"))
    said += "; this system's C library is too old for it: use a newer system, or name another posencd by POSENCD";
  // If the kernel cannot run a program, Node passes it to a shell, whose error begins with the name of the file.
  if (said.startsWith(`${spawnfile}: `)) said += `; ${wrongMachine}`;
  return `posencd ${how}${said && `: ${said}`}`;
}

async function stop(process: ChildProcess): Promise<void> {
  process.stdin!.end();
  if (!isRunning(process)) return;
  process.ref();
  const late = setTimeout(() => process.kill("SIGKILL"), longestEndMs);
  await once(process, "exit");
  clearTimeout(late);
}

/** Removes the folders of processes that were killed. This also frees the shared memory in these folders. */
async function removeLeftovers(): Promise<void> {
  for (const name of fs.existsSync(path.dirname(prefix)) ? fs.readdirSync(path.dirname(prefix)) : []) {
    const folder = path.join(path.dirname(prefix), name);
    const about = fs.lstatSync(folder, { throwIfNoEntry: false });
    if (!folder.startsWith(prefix) || !about?.isDirectory() || about.uid !== process.geteuid?.()) continue;
    // A new folder may belong to a server that is starting.
    const isOld = Date.now() - about.mtimeMs > longestStartMs;
    if (isOld && !(await answers(`${folder}/socket`))) fs.rmSync(folder, { recursive: true, force: true });
  }
}

function answers(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = net.connect(socket, () => {
      probe.destroy();
      resolve(true);
    });
    probe.on("error", ({ code }: NodeJS.ErrnoException) => resolve(code !== "ENOENT" && code !== "ECONNREFUSED"));
  });
}
