import assert from "node:assert/strict";
import { camelKeys, OPAQUE_FIELDS, snakeKeys } from "../dist/case.js";
import { EventParser } from "../dist/sse.js";
import { test, withServer } from "./harness.js";

const setup = withServer();

interface Schema {
  type?: string | string[];
  $ref?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  oneOf?: Schema[];
}

test("the fields that keep their keys are the maps in responses of the API document", async () => {
  const headers = { authorization: `Bearer ${setup.server.token}` };
  const document = await (await fetch(`${setup.server.url}/openapi.json`, { headers })).json();
  const resolve = (schema: Schema): Schema =>
    schema.$ref ? resolve(document.components.schemas[schema.$ref.split("/").at(-1)!]) : schema;
  const maps = new Set<string>();
  const visited = new Set<Schema>();
  const visit = (given: Schema, field: string): void => {
    const schema = resolve(given);
    for (const choice of schema.oneOf ?? []) visit(choice, field);
    if (schema.items) visit(schema.items, field);
    if ([schema.type].flat().includes("object") && !schema.properties) maps.add(field);
    if (visited.has(schema)) return;
    visited.add(schema);
    for (const [name, member] of Object.entries(schema.properties ?? {})) visit(member, name);
  };
  for (const path of Object.values<Record<string, { responses: Record<string, unknown> }>>(document.paths)) {
    for (const { responses } of Object.values(path)) {
      for (const status of ["200", "201"]) {
        const response = responses[status] as { content?: Record<string, { schema: Schema }> } | undefined;
        const json = response?.content?.["application/json"];
        if (json) visit(json.schema, "");
      }
    }
  }
  assert.deepEqual([...maps].sort(), [...OPAQUE_FIELDS].sort());
});

test("fields are renamed, and keys of the user are not", () => {
  const renamed = camelKeys({ thread_id: "t", items: [{ env_delta: { MY_VAR: 1 } }], stdout_base64: null });
  assert.deepEqual(renamed, { threadId: "t", items: [{ envDelta: { MY_VAR: 1 } }], stdoutBase64: null });
  assert.deepEqual(snakeKeys({ timeoutS: 1, labels: { aB: "c" }, name: undefined }), {
    timeout_s: 1,
    labels: { aB: "c" },
  });
});

test("events are parsed wherever their bytes are split", () => {
  const text =
    ': stead\nretry: 500\n\nid: 7\nevent: data\ndata: {"text":"é"}\n\nevent:exit\r\ndata:{}\r\n\r\nid: 8\ndata: {"cut';
  const expected = [
    { name: "data", id: "7", data: { text: "é" } },
    { name: "exit", id: undefined, data: {} },
  ];
  const bytes = new TextEncoder().encode(text);
  for (let size = 1; size <= bytes.length; size++) {
    const parser = new EventParser();
    const events = [];
    for (let start = 0; start < bytes.length; start += size) {
      events.push(...parser.parse(bytes.subarray(start, start + size)));
    }
    assert.deepEqual(events, expected);
  }
});
