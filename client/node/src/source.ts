import { readFile } from "node:fs/promises";
import { invalid } from "./errors";
import type { RopeSource, RopeSpec } from "./messages";
import { typeNamed } from "./schema";

/**
 * A rotary encoding: a preset's name, a model's config.json by its path or its content, or a specification. The first
 * three may also have the contract's RopeSource.profile, profileVersion, part, layerType, layerIndex,
 * sequenceLength and headDim.
 */
export type Rope =
  | string
  | RopeSpec
  | RopeSource
  | (Omit<RopeSource, "configJson"> & ({ configFile: string } | { config: object }));

/** Returns the contract's RopeSource. Reads files. */
export async function ropeSource(rope: Rope | undefined, field: string): Promise<object | undefined> {
  if (rope === undefined || rope === null) return undefined;
  if (typeof rope === "string") return { preset: rope };
  if (typeof rope !== "object") throw invalid(field, "must be a preset's name, or an object with configFile, config, preset or spec");
  const sources = ["preset", "spec", "configJson", "configFile", "config"];
  const known = typeNamed("posenc.v1.RopeSource").fields;
  const keys = Object.keys(rope);
  if (!keys.some((key) => sources.includes(key)) && !keys.every((key) => key in known)) return { spec: rope };
  const { configFile, config, ...source } = rope as RopeSource & { configFile?: string; config?: object };
  if (config !== undefined) return { ...source, configJson: JSON.stringify(config) };
  if (configFile === undefined) return source;
  try {
    return { ...source, configJson: await readFile(configFile, "utf8") };
  } catch (error) {
    throw invalid(`${field}.config_file`, (error as Error).message);
  }
}
