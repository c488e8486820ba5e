import assert from "node:assert";
import fs from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import posenc, { tensor } from "../index.mjs";
import { doublesOf, nearestBits } from "./numbers.mjs";
import { furthest, numbers, rotateAll } from "./oracle.mjs";
import { Ends, startServer, temporaryFolder } from "./servers.mjs";

const half = { pairing: "half_split" };
const halfOf = (pairs) => ({ pairing: "half_split", rotaryDim: pairs * 2 });
// The largest error: four roundings of float32 at 2 * sqrt(2), and the error of sines in double up to position 100.
const close = 2e-6;

describe("rotation", () => {
  let address, client;
  const ends = new Ends();
  after(() => ends.run());
  before(async () => {
    address = await startServer(ends);
    client = posenc.connect(address);
  });

  test("AppliesTheFormulaInEveryLayout", async () => {
    const [B, S, H, D] = [2, 3, 2, 8];
    const positions = {
      bshd: [[B, S, H, D], (head) => Math.floor(head / H) % S],
      bhsd: [[B, H, S, D], (head) => head % S],
      sbhd: [[S, B, H, D], (head) => Math.floor(head / (B * H))],
      thd: [[B * S, H, D], (head) => Math.floor(head / H)],
    };
    for (const [layout, [shape, positionOf]] of Object.entries(positions)) {
      const values = Float32Array.from(numbers(B * S * H * D));
      const { q, k } = await client.applyRope({ rope: half, q: tensor(values, shape), start: 7, layout });
      assert.strictEqual(k, undefined);
      assert.deepStrictEqual(q.shape, shape);
      assert.ok(
        furthest(
          q.data,
          rotateAll(values, D, (head) => positionOf(head) + 7),
        ) < close,
        layout,
      );
    }
  });

  test("RotatesQAndKOfDifferentHeadsAndPairings", async () => {
    const q = Float64Array.from(numbers(4 * 4 * 8));
    const k = Float64Array.from(numbers(4 * 1 * 8, 2));
    const spec = { pairing: "interleaved", ropeTheta: 500000 };
    const turned = await client.applyRope({
      rope: spec,
      q: tensor(q, [1, 4, 4, 8]),
      k: tensor(k, [1, 4, 1, 8]),
      start: 3,
      layout: "bshd",
    });
    const options = { theta: 500000, interleaved: true };
    assert.ok(
      furthest(
        turned.q.data,
        rotateAll(q, 8, (head) => 3 + Math.floor(head / 4), options),
      ) < 1e-14,
    );
    assert.ok(
      furthest(
        turned.k.data,
        rotateAll(k, 8, (head) => 3 + head, options),
      ) < 1e-14,
    );
  });

  test("RotatesSixteenBitFloatsAndRawBytes", async () => {
    for (const dtype of ["bfloat16", "float16"]) {
      const values = numbers(4 * 2 * 8);
      const bits = Uint16Array.from(values, (value) => nearestBits(value, dtype));
      const expected = rotateAll(values, 8, (head) => Math.floor(head / 2));
      const { q } = await client.applyRope({
        rope: half,
        q: tensor(bits, [1, 4, 2, 8], dtype),
        start: 0,
        layout: "bshd",
      });
      assert.ok(q.data instanceof Uint16Array);
      assert.strictEqual(q.dtype, dtype);
      // The bound is half a step of the type at 2 * sqrt(2), plus the error of the rotation.
      assert.ok(furthest(doublesOf(q.data, dtype), expected) <= (dtype === "bfloat16" ? 2 ** -7 : 2 ** -10) + close);
      const raw = new Uint8Array(bits.buffer);
      const fromBytes = await client.applyRope({
        rope: half,
        q: tensor(raw, [1, 4, 2, 8], dtype),
        start: 0,
        layout: "bshd",
      });
      assert.ok(fromBytes.q.data instanceof Uint8Array);
      assert.deepStrictEqual(
        Buffer.from(fromBytes.q.data),
        Buffer.from(q.data.buffer, q.data.byteOffset, q.data.byteLength),
      );
    }
  });

  test("MovesInt8AndBytesOfBlocks", async () => {
    const still = { oldRope: half, shift: 0, layout: "bshd" };
    const numbers = Int8Array.of(100, -50, 0, 127);
    const moved = await client.reposition({ ...still, k: tensor(numbers, [1, 1, 1, 4]), saturation: "finite" });
    assert.strictEqual(moved.dtype, "int8");
    assert.deepStrictEqual(moved.data, numbers);
    const block = new Int8Array(34);
    block.set([0, 0x3c, 127]); // the scale 1
    const k = tensor(block, [1, 1, 1, 34]);
    assert.deepStrictEqual((await client.reposition({ ...still, k, blockFormat: "q8_0" })).data, block);
    await assert.rejects(client.reposition({ ...still, k }), { field: "saturation" });
  });

  test("RotatesFloat8AndSaturatesAsTold", async () => {
    for (const [dtype, unit, largest, past] of [
      ["float8_e4m3fn", 2 ** -3, 448, 0x7f],
      ["float8_e5m2", 2 ** -2, 57344, 0x7c],
    ]) {
      const bits = Uint8Array.from(numbers(4 * 2 * 8), (value) => nearestBits(value, dtype));
      const expected = rotateAll(doublesOf(bits, dtype), 8, (head) => Math.floor(head / 2));
      const { q } = await client.applyRope({
        rope: half,
        q: tensor(bits, [1, 4, 2, 8], dtype),
        start: 0,
        layout: "bshd",
        saturation: "finite",
      });
      assert.ok(q.data instanceof Uint8Array);
      assert.strictEqual(q.dtype, dtype);
      assert.ok(furthest(doublesOf(q.data, dtype), expected) <= unit + close);
      // 0.785 rad are about an eighth of a turn, so x cos + x sin is 1.4 x.
      const top = nearestBits(largest, dtype);
      const turned = {
        rope: { pairing: "half_split", explicitFrequencies: { values: [0.785] } },
        start: 1,
        layout: "bshd",
      };
      const k = () => tensor(Uint8Array.of(top, top), [1, 1, 1, 2], dtype);
      assert.strictEqual((await client.applyRope({ ...turned, k: k(), saturation: "finite" })).k.data[1], top);
      assert.strictEqual((await client.applyRope({ ...turned, k: k(), saturation: "none" })).k.data[1], past);
      await assert.rejects(
        client.applyRope({ ...turned, k: k() }),
        (error) => error.reason === "FIELD_REQUIRED" && error.field === "saturation",
      );
    }
  });

  test("TakesEveryKindOfPositions", async () => {
    const values = Float32Array.from(numbers(2 * 3 * 8));
    const q = tensor(values, [2, 3, 1, 8]);
    const flat = tensor(values, [6, 1, 8]);
    const ids = [5, 0, 31.5];
    const cases = [
      [{ start: -2 }, (head) => (head % 3) - 2],
      [{ starts: [4, 9] }, (head) => (head % 3) + [4, 9][Math.floor(head / 3)]],
      [{ ids }, (head) => ids[head % 3]],
      [{ ids: Float32Array.from(ids) }, (head) => ids[head % 3]],
      [{ ids: tensor(Int32Array.of(1, 2, 3, 4, 5, 6), [2, 3]) }, (head) => head + 1],
      [{ ids: { dtype: "int64", shape: [3], values: [8, 7, 6] } }, (head) => 8 - (head % 3)],
      [{ positions: { start: 11 } }, (head) => (head % 3) + 11],
    ];
    for (const [where, positionOf] of cases) {
      const turned = await client.applyRope({ rope: half, q, ...where, layout: "bshd" });
      assert.ok(furthest(turned.q.data, rotateAll(values, 8, positionOf)) < close, JSON.stringify(where));
    }
    const packed = await client.applyRope({
      rope: half,
      q: flat,
      packed: { cuSeqlens: [0, 4, 6], starts: [10, 20] },
      layout: "thd",
    });
    assert.ok(
      furthest(
        packed.q.data,
        rotateAll(values, 8, (head) => (head < 4 ? 10 + head : 16 + head)),
      ) < close,
    );
    const { positions } = await client.buildPositions({ packed: { lengths: [4, 2] } });
    const built = await client.applyRope({ rope: half, q: flat, positions, layout: "thd" });
    assert.ok(
      furthest(
        built.q.data,
        rotateAll(values, 8, (head) => (head < 4 ? head : head - 4)),
      ) < close,
    );
  });

  test("WritesIntoGivenMemoryAndInPlace", async () => {
    const values = Float32Array.from(numbers(4 * 8));
    const expected = rotateAll(values, 8, (head) => head);
    const out = new Float32Array(32);
    const { q } = await client.applyRope({
      rope: half,
      q: tensor(values, [1, 4, 1, 8]),
      start: 0,
      layout: "bshd",
      out: { q: out },
    });
    assert.strictEqual(q.data, out);
    assert.ok(furthest(out, expected) < close);
    await client.applyRope({
      rope: half,
      q: tensor(values, [1, 4, 1, 8]),
      start: 0,
      layout: "bshd",
      out: { q: values },
    });
    assert.ok(furthest(values, expected) < close);
  });

  test("GivesAlignedArraysWhateverTheMessagesOffset", async () => {
    // The tensor's offset in the answer depends on the size of its encoded shape. With these numbers of heads, the
    // offset has all remainders modulo the size of an element.
    for (const heads of [1, 2, 17, 127, 128, 300]) {
      const values = Float64Array.from(numbers(heads * 8));
      const { q } = await client.applyRope({
        rope: half,
        q: tensor(values, [1, 1, heads, 8]),
        start: 2,
        layout: "bshd",
      });
      assert.ok(q.data instanceof Float64Array);
      assert.ok(
        furthest(
          q.data,
          rotateAll(values, 8, () => 2),
        ) < 1e-14,
        `${heads} heads`,
      );
    }
  });

  test("TakesViewsThatStartInsideOfABuffer", async () => {
    const memory = new Float32Array(40).fill(99);
    memory.set(numbers(32), 5);
    const inside = memory.subarray(5, 37);
    const expected = rotateAll(inside, 8, () => 6);
    const { q } = await client.applyRope({
      rope: half,
      q: tensor(inside, [1, 1, 4, 8]),
      start: 6,
      layout: "bshd",
      out: { q: inside },
    });
    assert.ok(furthest(q.data, expected) < close);
    assert.strictEqual(memory[4], 99);
    assert.strictEqual(memory[37], 99);
  });

  test("RotatesEmptyTensors", async () => {
    const { q } = await client.applyRope({
      rope: half,
      q: tensor(new Float32Array(0), [1, 0, 2, 8]),
      start: 0,
      layout: "bshd",
    });
    assert.strictEqual(q.data.length, 0);
    assert.deepStrictEqual(q.shape, [1, 0, 2, 8]);
  });

  test("ResolvesARopeOnceFromAPresetAFileAnObjectOrASpecification", async (t) => {
    const config = {
      model_type: "llama",
      hidden_size: 32,
      num_attention_heads: 4,
      rope_theta: 1234,
      max_position_embeddings: 64,
    };
    const configFile = path.join(temporaryFolder(t), "config.json");
    fs.writeFileSync(configFile, JSON.stringify(config));
    for (const source of [
      { configFile },
      { config },
      { configJson: JSON.stringify(config) },
      { spec: { ...halfOf(4), ropeTheta: 1234 } },
      { ...halfOf(4), ropeTheta: 1234 },
    ]) {
      const rope = await client.rope(source);
      assert.strictEqual(rope.spec.ropeTheta, 1234);
      const values = Float32Array.from(numbers(2 * 8));
      const { q } = await rope.apply({ q: tensor(values, [1, 2, 1, 8]), start: 9, layout: "bshd" });
      assert.ok(
        furthest(
          q.data,
          rotateAll(values, 8, (head) => 9 + head, { theta: 1234 }),
        ) < close,
      );
      const moved = await rope.reposition({ k: q, shift: -9, layout: "bshd" });
      assert.ok(
        furthest(
          moved.data,
          rotateAll(values, 8, (head) => head, { theta: 1234 }),
        ) <
          2 * close,
      );
    }
    const model = { model_type: "qwen2_vl", vision_config: { embed_dim: 1280, num_heads: 16 } };
    const vision = await client.rope({ config: model, part: "vision" });
    assert.strictEqual(vision.spec.rotaryDim, 80);
    const llama = await client.rope("llama-3.1-8b");
    assert.strictEqual(llama.spec.rotaryDim, 128);
    const { cos, sin } = await llama.table({ rows: 3 });
    assert.deepStrictEqual(
      [cos.shape, sin.shape],
      [
        [3, 64],
        [3, 64],
      ],
    );
    assert.strictEqual(cos.data[64], Math.fround(Math.cos(1)));
    // The base is ropeTheta * (factor * sequenceLength / maxPositionEmbeddings - (factor - 1))^(d / (d - 2)).
    const growing = { ...halfOf(4), dynamicNtk: { factor: 2, maxPositionEmbeddings: 64 } };
    const grown = await client.rope({ spec: growing, sequenceLength: 256 });
    const base = 1e4 * 7 ** (8 / 6);
    assert.ok(Math.abs((await grown.table({ rows: 2 })).cos.data[5] - Math.cos(base ** (-2 / 8))) < close);
    // This encoding is completed only by the tensor's head_dim.
    const open = await client.rope(half);
    assert.strictEqual(open.spec, undefined);
    const { q } = await open.apply({ q: tensor(Float32Array.of(1, 0), [1, 1, 1, 2]), start: 1, layout: "bshd" });
    assert.ok(furthest(q.data, [Math.cos(1), Math.sin(1)]) < close);
  });

  test("RepositionsByAShiftByShiftsAndToNewPositions", async () => {
    const values = Float32Array.from(numbers(3 * 8));
    const k = tensor(Float32Array.from(rotateAll(values, 8, (head) => head + 40)), [1, 3, 1, 8]);
    const cases = [
      [{ shift: -40 }, (head) => head],
      [{ shifts: [1, 2, 3] }, (head) => 41 + 2 * head],
      [{ oldPositions: { start: 40 }, newPositions: { ids: [9, 3, 5] } }, (head) => [9, 3, 5][head]],
      [{ movement: { shift: 2 } }, (head) => head + 42],
    ];
    for (const [movement, positionOf] of cases) {
      const moved = await client.reposition({ oldRope: half, k, ...movement, layout: "bshd" });
      assert.ok(furthest(moved.data, rotateAll(values, 8, positionOf)) < 3 * close, JSON.stringify(movement));
    }
  });
});
