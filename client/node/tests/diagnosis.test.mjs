import assert from "node:assert";
import { after, before, describe, test } from "node:test";
import posenc from "../index.mjs";
import { Ends, startServer } from "./servers.mjs";

// One key under two names: transformers reads rope_type, mlx-lm reads type.
const scaling = { rope_type: "yarn", type: "linear", factor: 4, original_max_position_embeddings: 32768 };
const llama = {
  model_type: "llama",
  hidden_size: 512,
  num_attention_heads: 8,
  rope_theta: 500000,
  max_position_embeddings: 131072,
};
const text = JSON.stringify({ ...llama, rope_scaling: scaling });

describe("differences between encodings", () => {
  let client;
  const ends = new Ends();
  before(async () => (client = posenc.connect(await startServer(ends))));
  after(() => {
    client.close();
    return ends.run();
  });

  test("DiagnosesAConfigurationThatReadersTakeDifferently", async () => {
    const answer = await client.diagnoseRope({
      inputs: [{ kind: "config", text }],
      readers: ["hf", "mlx"],
      length: 4096,
    });
    assert.deepStrictEqual([answer.length, answer.summary.error, answer.inputs[0].modelType], [4096, 1, "llama"]);
    const [finding] = answer.findings;
    assert.deepStrictEqual([finding.id, finding.severity], ["config.type-conflict", "SEVERITY_ERROR"]);
    assert.notStrictEqual(finding.fix, "");
    assert.deepStrictEqual(
      finding.readers.map(({ name }) => name),
      ["mlx-lm"],
    );
    // 0.1 ln(4) + 1 is YaRN's attention factor (arXiv:2309.00071). A linear scaling has none.
    assert.ok(Math.abs(finding.readers[0].amplitudeRatio * (0.1 * Math.log(4) + 1) - 1) < 1e-15);
  });

  test("ADiagnosisNamesWhatItCannotTake", async () => {
    const inputs = [{ kind: "config", text }];
    for (const [field, request] of [
      ["inputs", {}],
      ["inputs[0].kind", { inputs: [{ text }] }],
      ["inputs[0].kind", { inputs: [{ kind: "yaml", text }] }],
      ["inputs[0].txt", { inputs: [{ kind: "config", txt: text }] }],
      ["readers[0]", { inputs, readers: ["nobody"] }],
      ["readers", { inputs, readers: "hf" }],
    ]) {
      await assert.rejects(client.diagnoseRope(request), { code: "INVALID_ARGUMENT", field });
    }
    // Faults of a description are part of the answer.
    const { inputs: reports } = await client.diagnoseRope({ inputs: [{ kind: "config", text: "{" }, ...inputs] });
    assert.deepStrictEqual(
      reports.map(({ unreadable }) => unreadable !== ""),
      [true, false],
    );
  });

  test("TellsWhatIsLeftOfAScoreUnderAnotherEncoding", async () => {
    const base = (ropeTheta) => ({ pairing: "half_split", rotaryDim: 8, ropeTheta });
    const [rope, compareWith] = [base(10000), base(500000)];
    // kept(r) = mean over pairs of cos(r |w - w'|), with w = theta^(-i/4).
    const apart = [0, 1, 2, 3].map((i) => 10000 ** (-i / 4) - 500000 ** (-i / 4));
    const kept = Array.from({ length: 41 }, (_, r) => apart.reduce((sum, each) => sum + Math.cos(r * each), 0) / 4);
    const analysis = await client.analyzeRope({ rope, compareWith, maxDistance: 40 });
    assert.strictEqual(analysis.kept.length, 41);
    assert.ok(analysis.kept.every((each, r) => Math.abs(each - kept[r]) < 1e-14));
    const { difference } = await client.resolveRope({ rope, compareWith, length: 40 });
    assert.ok(difference.length === 40 && Math.abs(difference.keptAtLength - kept[40]) < 1e-14);
    assert.strictEqual(
      difference.firstDistance,
      kept.findIndex((each) => each < 0.9),
    );
    assert.deepStrictEqual((await client.analyzeRope({ rope, maxDistance: 40 })).kept, []);
    await assert.rejects(client.resolveRope({ rope, length: 40 }), { field: "length" });
  });
});
