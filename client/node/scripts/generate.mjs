// Makes these files from the contract (../../proto), and copies LICENSE:
//   src/contract.ts   the descriptors, the service config and the package's version. It is a module, so that bundlers
//                     find it.
//   src/messages.ts   the TypeScript types of the messages
// None of these files is under version control.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import protobuf from "protobufjs";

const here = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const repository = process.env.POSENC_ROOT ?? path.join(here, "..", "..");
const protos = path.join(repository, "proto");

const root = new protobuf.Root();
root.resolvePath = (_, target) =>
  target.startsWith("google/") ? target : path.join(protos, path.relative(protos, path.resolve(protos, target)));
root.loadSync(["posenc/v1/service.proto", "posenc/v1/errors.proto", "posenc/rpc/status.proto"], {
  alternateCommentMode: true,
});
root.resolveAll();

// V8 parses JSON in a string faster than the same object as code.
const parsed = (value) => `JSON.parse(${JSON.stringify(JSON.stringify(value))})`;
const { version } = JSON.parse(fs.readFileSync(path.join(here, "package.json"), "utf8"));
const serviceConfig = JSON.parse(fs.readFileSync(path.join(repository, "client", "service_config.json"), "utf8"));
fs.writeFileSync(
  path.join(here, "src", "contract.ts"),
  `// Generated; do not edit.
import type { INamespace } from "protobufjs";

export const descriptors = ${parsed(root.toJSON())} as INamespace;
export const serviceConfig = ${JSON.stringify(JSON.stringify(serviceConfig))};
export const version = ${JSON.stringify(version)};
`,
);
fs.copyFileSync(path.join(repository, "LICENSE"), path.join(here, "LICENSE"));

const contract = root.lookup("posenc.v1");
const upperSnake = (name) => name.replace(/(?<=[a-z0-9])(?=[A-Z])/g, "_").toUpperCase();
// A nested type gets the name of its parent and its own name.
const nameOf = (type) => (type.parent === contract ? "" : type.parent.name) + type.name;

// Messages that occur in requests; their fields are optional. Other messages always have all fields, because the
// server sets them.
const asked = new Set();
const visit = (type) => {
  if (asked.has(type)) return;
  asked.add(type);
  for (const field of type.fieldsArray) if (field.resolvedType instanceof protobuf.Type) visit(field.resolvedType);
};
const service = root.lookupService("posenc.v1.PositionalEncodingService");
for (const method of service.methodsArray) visit(method.resolvedRequestType);

const scalars = {
  double: "number",
  int32: "number",
  int64: "number",
  string: "string",
  bool: "boolean",
  bytes: "Uint8Array",
};

function typeOf(field, isAsked) {
  let text = scalars[field.type];
  const type = field.resolvedType;
  if (type instanceof protobuf.Enum) text = nameOf(type);
  if (type instanceof protobuf.Type) text = nameOf(type);
  if (type?.name === "Tensor") text = isAsked ? "Tensor | TensorMessage" : "Tensor";
  if (field.type === "int64" && isAsked) text = "number | bigint";
  return field.repeated ? (/\W/.test(text) ? `(${text})[]` : `${text}[]`) : text;
}

function comment(text, indent) {
  if (!text) return [];
  const lines = text.replaceAll("*/", "* /").split("\n");
  return [`${indent}/**`, ...lines.map((line) => `${indent} * ${line}`.trimEnd()), `${indent} */`];
}

const lines = [
  "// Generated from the contract; do not edit.",
  'import type { Dtype, Tensor, TensorMessage } from "./tensor";',
  "",
];
function write(type) {
  if (type instanceof protobuf.Enum) {
    if (nameOf(type) === "Dtype") return;
    const prefix = `${upperSnake(type.name)}_`;
    const values = Object.keys(type.values).filter((value) => !value.endsWith("_UNSPECIFIED"));
    const names = values.map((value) => `"${value.slice(prefix.length).toLowerCase()}"`);
    lines.push(...comment(type.comment, ""), `export type ${nameOf(type)} =`);
    lines.push(...[...names, ...values.map((value) => `"${value}"`)].map((name) => `  | ${name}`));
    lines[lines.length - 1] += ";";
    lines.push("");
    return;
  }
  if (!(type instanceof protobuf.Type)) return;
  for (const nested of type.nestedArray) write(nested);
  if (type.name === "Tensor") return;
  const isAsked = asked.has(type);
  lines.push(...comment(type.comment, ""), `export interface ${nameOf(type)} {`);
  for (const field of type.fieldsArray) {
    const optional = isAsked || field.partOf || (field.resolvedType instanceof protobuf.Type && !field.repeated);
    lines.push(...comment(field.comment, "  "), `  ${field.name}${optional ? "?" : ""}: ${typeOf(field, isAsked)};`);
  }
  lines.push("}", "");
}
for (const type of contract.nestedArray) write(type);
fs.writeFileSync(path.join(here, "src", "messages.ts"), lines.join("\n"));
