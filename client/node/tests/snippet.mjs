// snippet.mjs FILE TARGET DIR runs the README's lines in FILE on DIR/q.bin and
// DIR/k.bin, and writes the results to DIR/q.out and DIR/k.out.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [file, target, folder] = process.argv.slice(2);
const statements = fs.readFileSync(file, "utf8").replaceAll("localhost:50051", target);
const program = `import posenc from ${JSON.stringify(new URL("../index.mjs", import.meta.url).href)};
import fs from "node:fs";
const load = (name) => new Float32Array(new Uint8Array(fs.readFileSync(name)).buffer);
const bytes = (rotated) => { const data = rotated.data ?? rotated; return new Uint8Array(data.buffer, data.byteOffset, data.byteLength); };
let q = load("q.bin"), k = load("k.bin");
${statements}
fs.writeFileSync("q.out", bytes(q));
fs.writeFileSync("k.out", bytes(k));
`;
process.chdir(folder);
const script = path.resolve("snippet-program.mjs");
fs.writeFileSync(script, program);
await import(pathToFileURL(script).href);
