// posenc.local() starts a server for a block. After the block no server, folder or memory is left.
import assert from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import posenc, { tensor } from "../index.mjs";
import { furthest, numbers, rotateAll } from "./oracle.mjs";
import { temporaryFolder } from "./servers.mjs";

const folderOf = ({ target }) => path.dirname(target.slice("unix:".length));
const folders = () => fs.readdirSync("/dev/shm").filter((name) => name.startsWith("posenc-local-"));

/** Returns the ids of the server processes that were started with this folder. */
function serversAt(folder) {
  return fs.readdirSync("/proc").filter((pid) => {
    try {
      return fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes(`--ready-file=${folder}/ready`);
    } catch {
      return false; // not a process, or the process has ended
    }
  });
}

async function rotates(client) {
  const q = Float32Array.from(numbers(64));
  const out = tensor(new Float32Array(64), [1, 4, 2, 8]);
  await client.applyRope({
    rope: { pairing: "half_split" },
    q: tensor(q, [1, 4, 2, 8]),
    start: 0,
    layout: "bshd",
    out: { q: out.data },
  });
  assert.ok(
    furthest(
      out.data,
      rotateAll(q, 8, (head) => Math.floor(head / 2)),
    ) < 2e-6,
  );
}

/** Sets environment variables during a test. The value undefined removes a variable. */
function setVariables(t, variables) {
  const before = { ...process.env };
  t.after(() => (process.env = before));
  process.env = Object.fromEntries(
    Object.entries({ ...before, ...variables }).filter(([, value]) => value !== undefined),
  );
}

async function assertRefused(text, options) {
  const before = folders();
  await assert.rejects(posenc.local(options), (error) => {
    assert.ok(error.message.startsWith("posenc.local(): "), error.message);
    assert.match(error.message, text);
    return error.code === "UNAVAILABLE";
  });
  // The failed start left no folder. A start may remove folders that killed processes left, so
  // `before` may have more.
  assert.deepStrictEqual(
    folders().filter((folder) => !before.includes(folder)),
    [],
  );
}

describe("local", () => {
  test("ABlockHasAPrivateServerAndLeavesNothing", async (t) => {
    setVariables(t, { HOME: "/proc", TMPDIR: "/proc", POSENC_TOKEN_FILE: "/nonexistent" });
    const folder = await posenc.local(
      async (client) => {
        const [server] = serversAt(folderOf(client));
        assert.match(fs.readFileSync(`/proc/${server}/cmdline`, "utf8"), /--threads=1\0/);
        assert.strictEqual(fs.statSync(folderOf(client)).mode & 0o777, 0o700);
        await rotates(client);
        const region = await client.sharedRegion(1 << 20);
        assert.notStrictEqual(region.name, "");
        return folderOf(client);
      },
      { threads: 1, flags: ["--drain-timeout=2s"] },
    );
    assert.deepStrictEqual([serversAt(folder), fs.existsSync(folder)], [[], false]);
  });

  test("EachClientHasAServerOfItsOwnUntilItIsDisposed", async () => {
    const [one, other] = await Promise.all([posenc.local(), posenc.local()]);
    assert.notStrictEqual(one.target, other.target);
    await one[Symbol.asyncDispose]();
    await rotates(other);
    other.close();
    await other[Symbol.asyncDispose]();
    for (const client of [one, other]) assert.deepStrictEqual(serversAt(folderOf(client)), []);
  });

  const held = `
    import posenc from ${JSON.stringify(new URL("../index.mjs", import.meta.url).href)};
    const client = await posenc.local();
    await client.rope("llama-3.1-8b");
    console.log(client.target);`;

  test("TheServerEndsWhenItsProcessIsKilled", async (t) => {
    const program = spawn(process.execPath, ["--input-type=module", "-e", `${held} setInterval(() => {}, 1000);`], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    t.after(() => program.kill("SIGKILL"));
    const [line] = await once(program.stdout, "data");
    const folder = folderOf({ target: String(line).trim() });
    assert.strictEqual(serversAt(folder).length, 1);
    program.kill("SIGKILL");
    for (const end = Date.now() + 60_000; serversAt(folder).length > 0;) {
      assert.ok(Date.now() < end, "the server outlives its parent");
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    // The next local() removes the server's folder, which may contain regions.
    fs.utimesSync(folder, 0, 0);
    await posenc.local(() => assert.ok(!fs.existsSync(folder)));
  });

  test("AProgramThatForgetsItEndsAndLeavesNothing", async () => {
    const program = spawn(process.execPath, ["--input-type=module", "-e", held], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [[line], [code]] = await Promise.all([once(program.stdout, "data"), once(program, "exit")]);
    assert.strictEqual(code, 0);
    assert.ok(!fs.existsSync(folderOf({ target: String(line).trim() })));
  });

  test("AnotherStartKeepsWhatIsInUse", async () => {
    await posenc.local(async (client) => {
      fs.utimesSync(folderOf(client), 0, 0);
      await posenc.local(() => {});
      await rotates(client);
    });
  });

  test("AServerThatIsKilledIsNamed", async () => {
    const killed = posenc.local(async (client) => {
      await rotates(client);
      process.kill(Number(serversAt(folderOf(client))[0]), "SIGKILL");
      await client.rope("llama-3.1-8b");
    });
    await assert.rejects(killed, /posencd was killed by signal 9; call posenc.local\(\) again$/);
  });

  // Kinds of broken programs: the text of the program, and the text of the error.
  const notStarted = {
    "not there": [undefined, /ENOENT; POSENCD must name the server's program/],
    // A file system that is mounted noexec gives the same error.
    "not executable": ["", /EACCES; it must be executable, .* noexec/],
    "without its loader": ["#!/lib/ld-musl-x86_64.so.1\n", /ENOENT; .* needs glibc, which musl/],
    "for another machine": [`\x7fELF${"\0".repeat(60)}`, /; is it a program for this machine/],
    "for a newer glibc": [
      '#!/bin/sh\necho "libc.so.6: version \\`GLIBC_2.99\' not found" >&2\nexit 1\n',
      /ended with code 1: .*GLIBC_2.99.* not found; this system's C library is too old/,
    ],
    "killed at its start": ["#!/bin/sh\nkill -9 $$\n", /was killed by signal 9/],
  };
  for (const [what, [program, text]] of Object.entries(notStarted)) {
    test(`APosencdThatCannotStartIsNamed: ${what}`, async (t) => {
      const file = path.join(temporaryFolder(t), "posencd");
      if (program !== undefined) fs.writeFileSync(file, program, { mode: program ? 0o755 : 0o644 });
      setVariables(t, { POSENCD: file });
      await assertRefused(text);
    });
  }

  test("AFlagThatPosencdRefusesIsNamed", () => assertRefused(/ended with code 2: .*--threads/, { threads: -1 }));

  test("AMachineWithoutPosencdIsToldWhatToInstall", async (t) => {
    setVariables(t, { POSENCD: undefined, PATH: "" });
    await assertRefused(/there is no posencd: npm install @posenc\/server-linux-.*@\d/);
  });

  test("TheServersPackageIsFoundAndAnotherVersionRefused", async (t) => {
    setVariables(t, { POSENCD: undefined, PATH: "" });
    const name = `@posenc/server-${process.platform}-${process.arch}`;
    const home = new URL(`../node_modules/${name}`, import.meta.url).pathname;
    t.after(() => fs.rmSync(path.dirname(home), { recursive: true, force: true }));
    fs.mkdirSync(home, { recursive: true });
    const about = (version) => fs.writeFileSync(path.join(home, "package.json"), JSON.stringify({ name, version }));
    about("9.9.9");
    await assertRefused(new RegExp(`posenc is ${posenc.version}, but ${name} is 9.9.9: npm install`));
    about(posenc.version);
    await assertRefused(new RegExp(`${name}/posenc-programs: ENOENT`));
  });
});
