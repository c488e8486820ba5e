import assert from "node:assert";
import fs from "node:fs";
import path from "node:path";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import protobuf from "protobufjs";
import posenc, { tensor } from "../index.mjs";
import { furthest, numbers, rotateAll } from "./oracle.mjs";
import { Ends, startFake, startServer, temporaryFolder } from "./servers.mjs";

const half = { pairing: "half_split" };
const shape = [2, 3, 2, 8];
const bytes = 2 * 3 * 2 * 8 * 4;
const close = 2e-6; // as in rotation.test.mjs
const here = path.dirname(fileURLToPath(import.meta.url));

describe("shared memory", () => {
  let address, socket, prefix, client;
  const ends = new Ends();
  const files = () => fs.readdirSync("/dev/shm").filter((name) => name.startsWith(prefix));
  const q = Float32Array.from(numbers(bytes / 4));
  const rotated = (start, values = q) => rotateAll(values, 8, (head) => start + (Math.floor(head / 2) % 3));
  const fails = async (what, field, text) => {
    await assert.rejects(
      async () => what(),
      (error) => {
        assert.strictEqual(error.field, field, error.message);
        assert.match(error.message, text);
        return error.code === "INVALID_ARGUMENT";
      },
    );
  };

  after(async () => {
    client.close();
    await ends.run();
    assert.deepStrictEqual(files(), []);
  });
  before(async () => {
    const folder = temporaryFolder(ends);
    prefix = `${path.basename(folder)}-`;
    socket = `unix:${folder}/socket`;
    address = await startServer(ends, "--listen", socket, "--shared-memory-prefix", `/dev/shm/${prefix}`);
    client = posenc.connect(socket);
  });

  test("RotatesInPlace", async () => {
    const region = await client.sharedRegion(2 * bytes);
    assert.ok(region.name.startsWith(prefix));
    const [inPlace, k] = [region.tensor(shape).write(q), region.tensor(shape, "float32", bytes).write(q)];
    const result = await client.applyRope({
      rope: half,
      q: inPlace,
      k,
      start: 7,
      layout: "bshd",
      out: { q: inPlace, k },
    });
    assert.strictEqual(result.q, inPlace);
    assert.ok(furthest(inPlace.read(), rotated(7)) < close);
    assert.deepStrictEqual(k.data, result.q.data);
    region.close();
  });

  test("InputsAndResultsMayLieInDifferentMemory", async () => {
    const region = await client.sharedRegion(2 * bytes);
    const [view, other] = [region.tensor(shape).write(q), region.tensor(shape, "float32", bytes)];
    const own = new Float32Array(q.length);
    for (const [k, out] of [
      [view, other],
      [view, own],
      [tensor(q, shape), other],
      [view, undefined],
    ]) {
      other.write(new Float32Array(q.length));
      const moved = await client.reposition({ oldRope: half, k, shift: 5, layout: "bshd", out });
      assert.ok(
        furthest(
          moved.data,
          rotateAll(q, 8, () => 5),
        ) < close,
      );
      assert.ok(out === undefined || moved === out || moved.data === out);
      assert.deepStrictEqual(view.read(), q);
    }
    region.close();
  });

  test("OtherTensorsGoByTheirPlaceToo", async () => {
    const region = await client.sharedRegion(4096);
    const heads = [1, 2, 3, 8];
    const x = Float32Array.from(numbers(48));
    const table = tensor(new Float32Array(24).fill(1), [3, 8]);
    const view = region.tensor(heads).write(x);
    const score = { score: { shaw: { keyTable: table } } };
    const expected = await client.scoreRelative({ ...score, q: tensor(x, heads), k: tensor(x, heads) });
    const out = region.tensor(expected.shape, "float32", 1024);
    await client.scoreRelative({ ...score, q: view, k: view, out });
    assert.deepStrictEqual(out.read(), expected.data);
    await fails(
      () => client.scoreRelative({ ...score, q: view, k: view, out: region.tensor([1]) }),
      "scores_output",
      /has shape \[1\]/,
    );
    const rows = { encoding: { sinusoidal: { dim: 8, order: "interleaved" } }, start: 3 };
    const sum = await client.addEncoding({ ...rows, x: tensor(x, [6, 8]) });
    const held = region.tensor([6, 8]);
    await client.addEncoding({ ...rows, x: held, out: held });
    assert.deepStrictEqual(held.read(), sum.data);
    // A concatenation is twice as large as x. The bytes after an output that is too small stay unchanged.
    const behind = region.tensor([40], "int32", 2048).write(new Int32Array(40).fill(7));
    const small = region.tensor([6, 8], "float32", 2048 - 192);
    const wide = { ...rows, combination: "concatenate", x: held };
    await fails(
      () => client.addEncoding({ ...wide, out: small }),
      "x_output",
      /has shape \[6,8\]; the result has \[6,16\]/,
    );
    assert.strictEqual(behind.read()[0], 7);
    assert.strictEqual(
      (await client.addEncoding({ ...wide, out: region.tensor([6, 16], "float32", 2048) })).shape[1],
      16,
    );
    const swap = { oldPairing: "interleaved", newPairing: "half_split", heads: 1 };
    const weight = region.tensor([8, 4]);
    await assert.rejects(client.convertPairing({ ...swap, weight, out: weight }), { field: "weight_output" });
    region.close();
  });

  test("WhereTheServerSharesNothingTheSameCodeSendsBytes", async () => {
    const remote = posenc.connect(address);
    const region = await remote.sharedRegion(bytes);
    assert.strictEqual(region.name, "");
    assert.deepStrictEqual(files(), []);
    const view = region.tensor(shape).write(q);
    const result = await remote.applyRope({ rope: half, q: view, start: 7, layout: "bshd", out: { q: view } });
    assert.strictEqual(result.q, view);
    assert.ok(furthest(view.read(), rotated(7)) < close);
    remote.close();
  });

  /** Starts a server that refuses places in shared memory, and returns other tensors unchanged. */
  async function refusing(t, code, reason) {
    const root = protobuf.Root.fromJSON(createRequire(import.meta.url)("../dist/contract.js").descriptors);
    const calls = [];
    const encode = (name, message) => Buffer.from(root.lookupType(name).encode(message).finish());
    const info = encode("posenc.v1.GetServerInfoResponse", { sharedMemory: { directory: "/dev/shm", prefix } });
    const { Metadata } = (await import("@grpc/grpc-js")).default;
    const metadata = new Metadata();
    const detail = {
      type_url: "type.googleapis.com/google.rpc.ErrorInfo",
      value: encode("posenc.rpc.ErrorInfo", { reason }),
    };
    if (reason) metadata.set("grpc-status-details-bin", encode("posenc.rpc.Status", { details: [detail] }));
    const target = await startFake(t, {
      GetServerInfo: { handle: (call, respond) => respond(null, info) },
      ApplyRope: {
        handle(call, respond) {
          const request = root.lookupType("posenc.v1.ApplyRopeRequest").decode(call.request);
          calls.push(request);
          if (request.q.shared) respond({ code, details: "no", metadata });
          else respond(null, encode("posenc.v1.ApplyRopeResponse", { q: request.q }));
        },
      },
    });
    const client = posenc.connect(target);
    t.after(() => client.close());
    return { client, calls };
  }

  test("AServerThatRefusesPlacesGetsBytes", async (t) => {
    for (const code of [12, 7]) {
      const { client, calls } = await refusing(t, code, "ERROR_REASON_SHARED_MEMORY_UNAVAILABLE");
      const view = (await client.sharedRegion(bytes)).tensor(shape).write(q);
      await client.applyRope({ rope: half, q: view, start: 7, layout: "bshd", out: { q: view } });
      assert.deepStrictEqual(
        calls.map((each) => each.q.data.length),
        [0, bytes],
      );
      assert.strictEqual(calls[1].qOutput ?? null, null);
      client.close();
    }
  });

  test("ACallInPlaceIsSentOnceAndItsErrorSaysWhatToDo", async (t) => {
    const { client, calls } = await refusing(t, 14, "");
    const region = await client.sharedRegion(2 * bytes);
    const [view, other] = [region.tensor(shape).write(q), region.tensor(shape, "float32", bytes)];
    const call = { rope: half, q: view, start: 7, layout: "bshd" };
    await assert.rejects(
      client.applyRope({ ...call, out: { q: view } }),
      /q may have been rotated by then, .*: write it anew/,
    );
    assert.strictEqual(calls.length, 1);
    await assert.rejects(
      client.applyRope({ ...call, out: { q: other } }),
      (error) => error.code === "UNAVAILABLE" && !/anew/.test(error.message),
    );
    assert.strictEqual(calls.length, 5);
  });

  test("TheReadmesExampleRotatesInPlace", async () => {
    const readme = fs.readFileSync(path.join(here, "../README.md"), "utf8");
    const code = readme.split("<!-- shared memory -->")[1].split("```js\n")[1].split("```")[0];
    const AsyncFunction = (async () => {}).constructor;
    const rotated = await new AsyncFunction("client", `${code}; return rotated;`)(client);
    const x = tensor(new Float32Array(4096 * 32 * 128).fill(1), [1, 4096, 32, 128]);
    const expected = await client.applyRope({ rope: "llama-3.1-8b", q: x, start: 0, layout: "bshd" });
    assert.ok(
      Buffer.from(rotated.buffer, rotated.byteOffset, rotated.byteLength).equals(
        Buffer.from(expected.q.data.buffer, expected.q.data.byteOffset, expected.q.data.byteLength),
      ),
    );
  });

  // Files with the directory's group let containers of different users share a Kubernetes volume with an fsGroup.
  test("ADirectoryThatGivesItsGroupGetsFilesOfTheGroup", async (t) => {
    const directory = temporaryFolder(t);
    fs.chmodSync(directory, 0o2770);
    const region = await client.sharedRegion(10000, { directory });
    const { size, mode } = fs.statSync(path.join(directory, region.name));
    assert.deepStrictEqual([size, mode & 0o777], [10000, 0o660]);
    region.close();
  });

  test("RegionsAreFilesOfTheirFullSizeThatGoWhenClosed", async () => {
    const region = await client.sharedRegion(10000, { name: `${prefix}named` });
    assert.deepStrictEqual(files(), [`${prefix}named`]);
    const { size, mode, blocks } = fs.statSync(`/dev/shm/${prefix}named`);
    assert.deepStrictEqual([size, mode & 0o777], [10000, 0o600]);
    assert.ok(blocks * 512 >= size);
    await fails(() => client.sharedRegion(8, { name: `${prefix}named` }), "name", /is there already/);
    const view = region.tensor(shape);
    region.close();
    region.close();
    assert.deepStrictEqual(files(), []);
    const call = { rope: half, start: 0, layout: "bshd" };
    await fails(() => client.applyRope({ ...call, q: view }), "q", /lies in a shared region that is closed/);
    await fails(() => client.applyRope({ ...call, q: tensor(q, shape), out: { q: view } }), "q_output", /closed/);
    await fails(() => view.read(), "region", /is closed/);
    await fails(() => region.tensor(shape), "region", /is closed/);
  });

  test("FilesAreRemovedWithTheirClientAndWhenTheProgramEnds", async () => {
    const other = posenc.connect(socket);
    await other.sharedRegion(64);
    assert.strictEqual(files().length, 1);
    other.close();
    assert.deepStrictEqual(files(), []);
    const code = `import posenc from ${JSON.stringify(path.join(here, "../index.mjs"))};
      const region = await posenc.connect(${JSON.stringify(socket)}).sharedRegion(64);
      if (region.name === "") throw new Error("no file");
      process.exit(0);`;
    execFileSync(process.execPath, ["--input-type=module", "-e", code]);
    assert.deepStrictEqual(files(), []);
  });

  test("RegionsAndViewsThatCannotBeAreErrorsThatNameTheField", async () => {
    for (const [size, options, field] of [
      [0, {}, "bytes"],
      [-1, {}, "bytes"],
      [1.5, {}, "bytes"],
      ["8", {}, "bytes"],
      [2 ** 52, {}, "bytes"],
      [8, { name: "x" }, "name"],
      [8, { name: "" }, "name"],
      [8, { name: ".." }, "name"],
      [8, { name: `${prefix}/../x` }, "name"],
      [8, { name: `${prefix}\n` }, "name"],
      [8, { name: prefix + "x".repeat(255) }, "name"],
      [8, { directory: "/nowhere" }, "directory"],
    ]) {
      await fails(() => client.sharedRegion(size, options), field, new RegExp(`^${field}: `));
    }
    const region = await client.sharedRegion(64);
    for (const [argument, field] of [
      [[[17]], "shape"],
      [[[16], "float32", 4], "shape"],
      [[[-1, 4]], "shape"],
      [[[2 ** 40, 2 ** 40]], "shape"],
      [[16], "shape"],
      [[[4], "float32", 2], "offset"],
      [[[4], "float32", -4], "offset"],
      [[[4], "complex64"], "dtype"],
    ]) {
      await fails(() => region.tensor(...argument), field, new RegExp(`^${field}: `));
    }
    const view = region.tensor([4]);
    await fails(() => view.write(new Float32Array(5)), "elements", /has 20 bytes; the tensor has 16/);
    await fails(
      () => client.applyRope({ rope: half, q: tensor(q, shape), start: 0, layout: "bshd", out: { q: view } }),
      "q_output",
      /has shape \[4\]/,
    );
    assert.strictEqual(region.tensor([0, 4]).read().length, 0);
    region.close();
  });
});
