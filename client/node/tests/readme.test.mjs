import assert from "node:assert";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { startServer, temporaryFolder } from "./servers.mjs";

test("TheExampleOfTheReadmeRunsAsItStands", async (t) => {
  const readme = fs.readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const [, example] = /<!-- example -->\n```js\n(.*?)```/s.exec(readme);
  const program = path.join(temporaryFolder(t), "example.mjs");
  const posenc = new URL("../index.mjs", import.meta.url).href;
  fs.writeFileSync(
    program,
    example.replace('"posenc"', JSON.stringify(posenc)).replace("localhost:50051", await startServer(t)),
  );
  const [rotated, moved, table] = execFileSync(process.execPath, [program], { encoding: "utf8" }).trim().split("\n");
  assert.strictEqual(rotated, "16384 [ 1, 4, 32, 128 ] float32");
  assert.ok(Math.abs(Number(moved) - 1) < 1e-5);
  assert.strictEqual(table, "[ 8192, 64 ] [ 8192, 64 ]");
});
