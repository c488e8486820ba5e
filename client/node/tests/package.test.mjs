import assert from "node:assert";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { startServer, temporaryFolder } from "./servers.mjs";

const home = fileURLToPath(new URL("..", import.meta.url));

test("ProgramsWorkWhenABundlerPutsAllOfThemIntoOneFile", async (t) => {
  const server = await startServer(t);
  const folder = temporaryFolder(t);
  fs.mkdirSync(path.join(folder, "node_modules"));
  fs.symlinkSync(home, path.join(folder, "node_modules", "posenc"));
  const program = `(async () => {
    const q = posenc.tensor(Float32Array.of(1, 0), [1, 1, 1, 2]);
    const client = posenc.connect(${JSON.stringify(server)});
    const rotated = await client.applyRope({ rope: { pairing: "half_split" }, q, start: 1, layout: "bshd" });
    const error = await client.resolveRope({ rope: "none" }).catch((error) => error);
    console.log(rotated.q.data[0] === Math.fround(Math.cos(1)), error instanceof posenc.PosencError, error.reason);
  })();`;
  const sources = { "esm.mjs": 'import * as posenc from "posenc";', "cjs.cjs": 'const posenc = require("posenc");' };
  // Bundles of CommonJS packages that use Node's own modules usually begin with this line.
  const banner = 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';
  for (const [name, source] of Object.entries(sources)) {
    fs.writeFileSync(path.join(folder, name), `${source}\n${program}`);
    for (const [format, js] of Object.entries({ cjs: "", esm: banner })) {
      const outfile = path.join(temporaryFolder(t), format === "cjs" ? "bundle.cjs" : "bundle.mjs");
      const entryPoints = [path.join(folder, name)];
      buildSync({ entryPoints, outfile, bundle: true, platform: "node", format, banner: { js }, logLevel: "error" });
      const printed = execFileSync(process.execPath, [outfile], { encoding: "utf8" });
      assert.strictEqual(printed, "true true PRESET_UNKNOWN\n", `${name} as ${format}`);
    }
  }
});

test("NoModuleImportsItselfThroughOthers", () => {
  const imports = {};
  for (const file of fs.readdirSync(path.join(home, "src"))) {
    const text = fs.readFileSync(path.join(home, "src", file), "utf8");
    imports[path.basename(file, ".ts")] = [...text.matchAll(/ from "\.\/(\w+)"/g)].map(([, name]) => name);
  }
  assert.ok(imports.client.includes("calls"));
  const visit = (name, above) => {
    assert.ok(!above.includes(name), `${[...above, name].join(" -> ")}`);
    for (const each of imports[name]) visit(each, [...above, name]);
  };
  for (const name of Object.keys(imports)) visit(name, []);
});
