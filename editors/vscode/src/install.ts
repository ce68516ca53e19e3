// Installs the server into a folder of the extension's own and removes it: starts install.py, which does the work, and reads
// what it says. Knows nothing of VS Code.

import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, constants, createReadStream, existsSync, lstatSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";

export interface Message { kind: "progress" | "done" | "failed"; message: string; percent?: number; reason?: string }
export interface Run { done: Promise<Message>; cancel: () => void }

const GRACE_MS = 15000; // for the installer to remove what it made
const MORE_FOLDERS = ["/opt/homebrew/bin", "/usr/local/bin", "/usr/bin", join(homedir(), ".local", "bin"), join(homedir(), ".cargo", "bin")];
// The installer itself runs on any of these, and finds or brings the Python that Midfill needs.
const WAYS = [["python3"], ["python"], ["uv", "run", "--no-project", "--python", ">=3.11,<3.15"]];

/** The path and the usual folders: an editor that no shell started lacks some. */
export function searchPath(path = process.env.PATH ?? ""): string {
  return [...new Set([...path.split(delimiter), ...MORE_FOLDERS])].filter(Boolean).join(delimiter);
}

export function findProgram(name: string, path = searchPath()): string | undefined {
  return path.split(delimiter).map((folder) => join(folder, name)).find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The command of the installed server; "broken" where its Python is gone, undefined where there is none. */
export function findInstalled(store: string): string[] | "broken" | undefined {
  try {
    lstatSync(join(store, "current"));
  } catch {
    return undefined;
  }
  try {
    // Not by the link: a server whose environment is updated meanwhile keeps its own files.
    const python = join(realpathSync(join(store, "current")), "bin", "python");
    return isProgram(python) ? [python, "-P", "-m", "midfill_lsp"] : "broken";
  } catch {
    return "broken";
  }
}

/** The wheel that the extension brings. */
export function findWheel(server: string): string | undefined {
  const name = readdirSync(server).find((name) => /^midfill-.*\.whl$/.test(name));
  return name && join(server, name);
}

/** Whether the extension brings another wheel than the one that is installed. */
export async function isOutdated(store: string, wheel: string): Promise<boolean> {
  try {
    const { source } = JSON.parse(readFileSync(join(store, "current", "midfill.json"), "utf8")) as { source: string };
    const hash = createHash("sha256");
    for await (const block of createReadStream(wheel)) hash.update(block as Buffer);
    return hash.digest("hex") !== source;
  } catch {
    return false;
  }
}

/** Why nothing can be installed here, as one sentence; undefined where it can. */
export function refusal(server: string, platform: string = process.platform, path = searchPath()): string | undefined {
  if (!existsSync(join(server, "install.json"))) return "This build of Midfill's extension brings no server: set `midfill.serverCommand`.";
  const ways = JSON.parse(readFileSync(join(server, "install.json"), "utf8")) as Record<string, string>;
  if (platform === "win32") return ways.win32;
  if (WAYS.some(([program]) => findProgram(program, path))) return undefined;
  return noPython(ways, platform, path);
}

function noPython(ways: Record<string, string>, platform: string, path: string): string {
  return ways[platform] ?? ways[Object.keys(ways).find((name) => findProgram(name, path)) ?? "other"];
}

/** Starts the installer. `hear` gets its progress, `log` what the programs that it calls say. */
export function start(server: string, words: string[], hear: (message: Message) => void, log: (text: string) => void): Run {
  let child: ChildProcess | undefined;
  let isCancelled = false;
  const done = (async (): Promise<Message> => {
    for (const way of WAYS) {
      const program = findProgram(way[0]);
      if (!program || isCancelled) continue;
      const [action, ...more] = words;
      child = spawn(program, [...way.slice(1), join(server, "install.py"), action, ...more, "--cancel-on-eof"],
        { env: { ...process.env, PATH: searchPath() }, detached: true, stdio: ["pipe", "pipe", "pipe"] });
      const last = await listen(child, hear, log);
      if (last) return last;
    }
    const ways = JSON.parse(readFileSync(join(server, "install.json"), "utf8")) as Record<string, string>;
    return isCancelled
      ? { kind: "failed", reason: "cancelled", message: "Cancelled; nothing was left behind." }
      : { kind: "failed", reason: "no_python", message: noPython(ways, process.platform, searchPath()) };
  })();
  const cancel = () => {
    isCancelled = true;
    const ended = child;
    ended?.stdin?.end(); // the installer ends its programs and removes what it made
    const kill = () => { if (ended?.pid && ended.exitCode === null) process.kill(-ended.pid, "SIGKILL"); };
    setTimeout(kill, GRACE_MS).unref();
  };
  return { done, cancel };
}

/** The installer's last message; undefined where it said nothing, as the program is none that runs it. */
async function listen(child: ChildProcess, hear: (message: Message) => void, log: (text: string) => void): Promise<Message | undefined> {
  let [last, rest] = [undefined as Message | undefined, ""];
  child.stdout!.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      const message = parse(line);
      if (message?.kind === "progress") hear(message);
      last = message ?? last;
    }
  });
  child.stderr!.setEncoding("utf8").on("data", (text: string) => log(text.trimEnd()));
  child.stdin!.on("error", () => {});
  const code = await new Promise<number | null>((end) => {
    child.on("error", () => end(null));
    child.on("close", end);
  });
  if (last?.kind === "progress") return { kind: "failed", reason: "ended", message: `The installer ended with exit code ${code}; install again.` };
  return last;
}

function parse(line: string): Message | undefined {
  try {
    const message = JSON.parse(line) as Message;
    return typeof message.kind === "string" ? message : undefined;
  } catch {
    return undefined;
  }
}
