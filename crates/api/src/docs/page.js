// Renders the OpenAPI document. Text is only ever set as text, never as markup.
"use strict";

function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

// One line for a schema: its name, or its shape a level deep.
function shape(schema) {
  if (!schema) return "any";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.oneOf || schema.anyOf) return (schema.oneOf || schema.anyOf).map(shape).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return shape(schema.items) + "[]";
  return Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type || "any";
}

function fields(schema, all) {
  const found = schema && schema.$ref ? all[schema.$ref.split("/").pop()] : schema;
  if (!found || !found.properties) return null;
  const required = new Set(found.required || []);
  const rows = Object.entries(found.properties).map(([name, property]) =>
    make("tr", {},
      make("td", {}, make("code", { textContent: name + (required.has(name) ? "" : "?") })),
      make("td", {}, make("code", { textContent: shape(property) })),
      make("td", { textContent: property.description || "" })));
  return make("table", {}, ...rows);
}

function content(title, map, all) {
  return Object.entries(map || {}).flatMap(([kind, { schema }]) => [
    make("p", {}, `${title}: `, make("code", { textContent: kind }), " ",
      make("code", { textContent: shape(schema) })),
    fields(schema, all),
  ]);
}

function operation(path, method, one, all) {
  const parameters = (one.parameters || []).map((parameter) =>
    make("tr", {},
      make("td", {}, make("code", { textContent: parameter.name + (parameter.required ? "" : "?") })),
      make("td", { textContent: parameter.in }),
      make("td", {}, make("code", { textContent: shape(parameter.schema) })),
      make("td", { textContent: parameter.description || "" })));
  const responses = Object.entries(one.responses || {}).flatMap(([status, response]) => [
    make("p", {}, make("b", { textContent: status }), " ", response.description || ""),
    ...content("answer", response.content, all),
  ]);
  return make("details", { id: one.operationId || "" },
    make("summary", {},
      make("span", { className: "method", textContent: method.toUpperCase() }),
      make("code", { textContent: path }),
      make("span", { textContent: one.summary || one.description || "" })),
    one.description ? make("p", { textContent: one.description }) : null,
    parameters.length ? make("table", {}, ...parameters) : null,
    ...content("body", one.requestBody && one.requestBody.content, all),
    ...responses);
}

async function draw() {
  const about = document.getElementById("about");
  const answer = await fetch("/openapi.json");
  if (!answer.ok) {
    about.textContent = `Cannot load /openapi.json: ${answer.status}. Sign in with the link \`stead login\` prints.`;
    return;
  }
  const api = await answer.json();
  const all = (api.components && api.components.schemas) || {};
  about.replaceChildren(`${api.info.description} Version ${api.info.version}. Download: `,
    make("a", { href: "/openapi.json", textContent: "OpenAPI 3.1" }), ".");
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const [method, one] of Object.entries(item)) {
      if (!one || !one.responses) continue;
      const tag = (one.tags && one.tags[0]) || "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(path, method, one, all));
    }
  }
  const routes = document.getElementById("routes");
  for (const [tag, list] of groups) {
    routes.append(make("section", {}, make("h2", { textContent: tag }), ...list));
  }
  const codes = (all.Code && all.Code.enum) || [];
  document.getElementById("codes").append(
    ...codes.map((code) => make("li", { id: code }, make("code", { textContent: code }))));
  document.getElementById("filter").addEventListener("input", (event) => {
    const word = event.target.value.toLowerCase();
    for (const one of routes.querySelectorAll("details")) {
      one.hidden = !one.textContent.toLowerCase().includes(word);
    }
  });
}

draw().catch((error) => {
  document.getElementById("about").textContent = String(error);
});
