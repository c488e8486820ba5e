// Tables in the caller's memory equal tables in new memory. No other memory is written.
import assert from "node:assert";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import posenc, { SharedTensor, tensor } from "../index.mjs";
import { Ends, startServer, temporaryFolder } from "./servers.mjs";

const spec = { pairing: "half_split", rotaryDim: 8 };
const byHead = { pairing: "half_split", rotaryDim: 4, explicitFrequencies: { heads: 3, values: [1, 2, 3, 4, 5, 6] } };
const absolute = (encoding) => ({ absolute: encoding, start: 1, rows: 2 });
const kinds = {
  half: { rope: spec, start: 3, rows: 5 },
  duplicated: { rope: spec, start: 3, rows: 5, layout: "duplicated", dtype: "float16" },
  repeated: { rope: spec, start: 3, rows: 5, layout: "pair_repeated", dtype: "bfloat16" },
  complex: { rope: spec, start: 3, rows: 5, layout: "complex", dtype: "float64" },
  byHead: { rope: byHead, start: 3, rows: 5, layout: "half" },
  ids: { rope: spec, ids: [9, 2, 4] },
  packed: { rope: spec, packed: { cuSeqlens: [0, 2, 5] } },
  grid: { absolute: { sincosGrid: { dim: 8, extents: [2, 3], leadingZeroRows: 1 } } },
  sinusoidal: absolute({ sinusoidal: { dim: 7, order: "sin_cos" } }),
  timestep: absolute({ timestep: { dim: 6 } }),
  learned: absolute({
    learned: {
      table: tensor(
        Float32Array.from({ length: 12 }, (_, i) => i),
        [4, 3],
      ),
    },
  }),
  fourier: absolute({ fourierFeatures: { frequencies: tensor(Float32Array.of(0.5, 2, 1), [1, 3]) } }),
};
const namesOf = (table) => ["cos", "sin", "table"].filter((name) => table[name] !== undefined);
const bytesOf = ({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

describe("tables", () => {
  let address, client, small;
  const ends = new Ends();
  after(() => {
    client.close();
    small.close();
    return ends.run();
  });
  before(async () => {
    const sharing = async (...flags) => {
      const folder = temporaryFolder(ends);
      address = await startServer(
        ends,
        "--listen",
        `unix:${folder}/socket`,
        "--shared-memory-prefix",
        `/dev/shm/${path.basename(folder)}-`,
        ...flags,
      );
      return posenc.connect(`unix:${folder}/socket`);
    };
    small = await sharing("--max-response-bytes", "4KiB");
    client = await sharing();
  });
  const fails = (call, field, message) => assert.rejects(call, { code: "INVALID_ARGUMENT", field, message });

  test("TablesOfEveryKindGoToTheirPlaces", async () => {
    for (const [kind, request] of Object.entries(kinds)) {
      const wire = await client.buildTable(request);
      const region = await client.sharedRegion(8192);
      const all = region.tensor([8192], "float8_e5m2").write(new Uint8Array(8192).fill(7));
      const out = Object.fromEntries(
        namesOf(wire).map((name, i) => [name, region.tensor(wire[name].shape, wire[name].dtype, i * 4096)]),
      );
      const table = await client.buildTable({ ...request, out });
      assert.deepStrictEqual(namesOf(table), namesOf(wire), kind);
      assert.strictEqual(table.amplitude, wire.amplitude);
      for (const [i, name] of namesOf(wire).entries()) {
        assert.strictEqual(table[name], out[name]);
        assert.ok(bytesOf(table[name]).equals(bytesOf(wire[name])), `${kind}: ${name}`);
        assert.strictEqual(all.read()[i * 4096 + wire[name].data.byteLength], 7, `${kind}: wrote behind ${name}`);
      }
      region.close();
    }
  });

  // This server limits its answers. Tensors in shared memory are not in the answer, and need no stream.
  test("ATableInSharedMemoryIsNoLargeAnswer", async () => {
    for (const rope of [{ pairing: "half_split", rotaryDim: 128 }, "llama-2-7b"]) {
      const request = { rope, start: 0, rows: 300 };
      const wire = await small.buildTable(request);
      const region = await small.sharedRegion(2 * 300 * 64 * 4);
      const out = { cos: region.tensor([300, 64]), sin: region.tensor([300, 64], "float32", 300 * 64 * 4) };
      const streamed = [];
      const { stream } = small.calls;
      small.calls.stream = function (name, ...rest) {
        streamed.push(name);
        return stream.call(this, name, ...rest);
      };
      const table = await small.buildTable({ ...request, out });
      small.calls.stream = stream;
      // The only stream is the request for the size. A second stream would carry the bytes of the table.
      assert.deepStrictEqual(streamed, ["BuildTableStream"]);
      assert.ok(table.cos === out.cos && table.sin instanceof SharedTensor);
      assert.ok(bytesOf(out.cos).equals(bytesOf(wire.cos)) && bytesOf(out.sin).equals(bytesOf(wire.sin)));
      region.close();
    }
  });

  test("ATableGoesToMemoryOfTheCallersInOneMessageAndAsAStream", async () => {
    for (const each of [client, small]) {
      const rope = await each.rope("llama-2-7b");
      const want = await rope.table({ rows: 300 });
      const [cos, sin] = [new Float32Array(300 * 64), new Float32Array(300 * 64)];
      const table = await rope.table({ rows: 300, out: { cos, sin } });
      assert.ok(table.cos.data === cos && table.sin.data === sin);
      assert.deepStrictEqual([cos, sin], [want.cos.data, want.sin.data]);
      cos.fill(0);
      await rope.table({ rows: 300, out: { cos } });
      assert.deepStrictEqual(cos, want.cos.data);
    }
  });

  test("OutputsThatDoNotFitAreNamed", async () => {
    const rope = await client.rope("llama-2-7b");
    const region = await client.sharedRegion(4096);
    await fails(
      rope.table({ rows: 3, out: { table: new Float32Array(3) } }),
      "table_output",
      "table_output: is given; the result has cos and sin",
    );
    await fails(
      rope.table({ rows: 3, out: { cos: region.tensor([1, 64]) } }),
      "cos_output",
      "cos_output: has shape [1,64]; the result has [3,64]",
    );
    await fails(
      rope.table({ rows: 3, out: { cos: region.tensor([3, 64], "int32") } }),
      "cos_output",
      "cos_output: is int32; must be float32",
    );
    await fails(
      rope.table({ rows: 3, out: { sin: new Float32Array(3) } }),
      "sin_output",
      "sin_output: has 12 bytes; the result has 768",
    );
    await fails(
      rope.table({ rows: 3, out: { sin: new Int32Array(192) } }),
      "sin_output",
      "sin_output: is a Int32Array; must be a Float32Array, for float32",
    );
    await fails(
      client.buildTable({ rope: "llama-2-7b", start: 0, rows: 3, out: { cos: region.tensor([3]) } }),
      "cos_output",
      "cos_output: has shape [3]; the result has [3,64]",
    );
    await assert.rejects(rope.table({ rows: 3, out: { cosine: new Float32Array(3) } }), { field: "cosine_output" });
    await assert.rejects(rope.table({ rows: 3, out: null }), { field: "out" });
    const held = region.tensor([3, 64]);
    region.close();
    await fails(rope.table({ rows: 3, out: { cos: held } }), "cos_output", /lies in a shared region that is closed/);
  });

  test("ATableThatTheServerCannotPlaceComesAsBytes", async () => {
    const region = await client.sharedRegion(2 * 3 * 4 * 4);
    const out = { cos: region.tensor([3, 4]), sin: region.tensor([3, 4], "float32", 48) };
    const other = posenc.connect(address); // the server refuses shared memory over this address
    const wire = await other.buildTable({ rope: spec, start: 0, rows: 3 });
    assert.strictEqual((await other.buildTable({ rope: spec, start: 0, rows: 3, out })).sin, out.sin);
    assert.ok(bytesOf(out.cos).equals(bytesOf(wire.cos)) && bytesOf(out.sin).equals(bytesOf(wire.sin)));
    other.close();
    region.close();
  });
});
