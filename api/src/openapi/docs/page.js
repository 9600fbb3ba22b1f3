"use strict";
// Renders the OpenAPI document that is embedded in this page. Text is always inserted as text, never as markup.
(() => {
  const spec = JSON.parse(document.getElementById("document").textContent);
  const at = (id) => document.getElementById(id);

  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };

  // Within a line the only Markdown is `code` in backticks.
  const prose = (text) =>
    text.split("`").map((part, position) => (position % 2 ? make("code", {}, part) : part));

  // Paragraphs and numbered lists.
  const paragraphs = (text) =>
    text.trim().split(/\n\s*\n/).map((block) => {
      const lines = block.split("\n");
      if (lines.every((line) => /^\d+\. /.test(line)))
        return make("ol", {}, ...lines.map((line) => make("li", {}, ...prose(line.replace(/^\d+\. /, "")))));
      return make("p", {}, ...prose(lines.join(" ")));
    });

  const say = (text) => { at("said").textContent = text; };

  const copyable = (code) => {
    const button = make("button", { type: "button" }, "Copy");
    const block = make("div", { class: "block" }, make("pre", { tabindex: "0" }, code), button);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        say("Copied");
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      } catch {
        // The clipboard is not available without TLS: select the text, so that the keyboard can copy it.
        getSelection().selectAllChildren(code);
        say("Selected; copy with the keyboard");
      }
    });
    return block;
  };

  const json = (value) => copyable(make("code", {}, JSON.stringify(value, null, 2)));

  // Returns a schema with references resolved and `allOf` and `oneOf` merged.
  const resolve = (schema) => {
    if (!schema) return {};
    if (schema.$ref) {
      const target = schema.$ref.replace("#/", "").split("/").reduce((place, step) => place[step], spec);
      return { ...resolve(target), ...(schema.description ? { description: schema.description } : {}) };
    }
    if (schema.allOf) {
      const parts = schema.allOf.map(resolve);
      return {
        type: "object",
        properties: Object.assign({}, ...parts.map((part) => part.properties || {})),
        required: parts.flatMap((part) => part.required || []),
      };
    }
    if (schema.oneOf) {
      const parts = schema.oneOf.map(resolve);
      const value = parts.find((part) => part.type !== "null") || {};
      const nullable = parts.some((part) => part.type === "null");
      return { ...value, nullable, ...(schema.description ? { description: schema.description } : {}) };
    }
    return schema;
  };

  const kind = (schema) => {
    const types = [].concat(schema.type || "any");
    const nullable = schema.nullable || types.includes("null");
    const plain = types.filter((type) => type !== "null");
    let text = plain.join(" or ");
    if (plain[0] === "array") text = `array of ${kind(resolve(schema.items))}`;
    if (schema.format) text += ` (${schema.format})`;
    return nullable ? `${text} or null` : text;
  };

  const limits = (schema) => {
    const said = [];
    const values = (schema.enum || []).filter((value) => value !== null);
    if (values.length) said.push(`one of ${values.map((value) => `\`${value}\``).join(", ")}`);
    if (schema.minimum !== undefined && schema.maximum !== undefined) said.push(`${schema.minimum} to ${schema.maximum}`);
    else if (schema.minimum !== undefined) said.push(`at least ${schema.minimum}`);
    if (schema.multipleOf === 1) said.push("whole");
    if (schema.minLength) said.push(`at least ${schema.minLength} character${schema.minLength > 1 ? "s" : ""}`);
    if (schema.maxLength) said.push(`at most ${schema.maxLength} characters`);
    if (schema.minItems) said.push(`at least ${schema.minItems} item${schema.minItems > 1 ? "s" : ""}`);
    if (schema.maxItems) said.push(`at most ${schema.maxItems} items`);
    if (schema.default !== undefined) said.push(`default \`${schema.default}\``);
    const text = said.join("; ");
    return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
  };

  // One row per field, required fields first; the fields of nested objects follow with their path.
  const rows = (schema, prefix) => {
    const isRequired = (name) => (schema.required || []).includes(name);
    const names = Object.keys(schema.properties || {});
    const ordered = [...names.filter(isRequired), ...names.filter((name) => !isRequired(name))];
    return ordered.flatMap((name) => {
      const field = resolve(schema.properties[name]);
      const must = isRequired(name);
      const row = make("tr", {},
        make("th", { scope: "row" },
          prefix ? make("span", { class: "inner" }, prefix) : null, name,
          must ? make("span", { class: "must" }, "required") : null),
        make("td", { class: "kind" }, kind(field)),
        make("td", {}, ...prose([field.description || "", limits(field)].filter(Boolean).join(" "))));
      const items = [].concat(field.type || []).includes("array") ? resolve(field.items) : null;
      const within = items ? rows(items, `${prefix}${name}[].`) : rows(field, `${prefix}${name}.`);
      return [row, ...within];
    });
  };

  const table = (caption, heads, body) =>
    make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
      make("table", {},
        make("caption", { class: "visually-hidden" }, caption),
        make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, ...body)));

  const fields = (caption, schema) => table(caption, ["Field", "Type", "Meaning"], rows(resolve(schema), ""));

  const base = () => at("base").value.replace(/\/$/, "");
  const key = () => at("key").value.trim() || "$PHOTOFINISH_KEY";
  const curls = [];

  const curl = (path, body, accept) => {
    const code = make("code", {});
    // The body is in single quotes; a single quote within it must be escaped for the shell.
    const quoted = JSON.stringify(body).replaceAll("'", `'\\''`);
    const draw = () => {
      code.textContent = `curl -X POST '${base()}${path}' \\\n  -H "x-api-key: ${key()}" \\\n` +
        (accept ? `  -N -H 'accept: ${accept}' \\\n` : "") +
        `  -H 'content-type: application/json' \\\n  -d '${quoted}'`;
    };
    curls.push(draw);
    draw();
    return copyable(code);
  };

  const anchor = (operation) => operation.operationId.replaceAll(".", "-");

  const article = (path, operation) => {
    const request = operation.requestBody.content["application/json"];
    const response = operation.responses["200"].content;
    const success = response["application/json"];
    const id = anchor(operation);
    return make("article", { id, "aria-labelledby": `${id}-title` },
      make("h3", { id: `${id}-title` }, operation.summary),
      make("p", { class: "path" }, make("span", { class: "verb" }, "POST"), path),
      ...paragraphs(operation.description),
      make("h4", {}, operation.requestBody.required ? "Request" : "Request (optional)"),
      fields(`Fields of the request of ${operation.operationId}`, request.schema),
      curl(path, request.example),
      response["text/event-stream"] ? curl(path, request.example, "text/event-stream") : null,
      make("h4", {}, "Response"),
      fields(`Fields of the response of ${operation.operationId}`, success.schema),
      json(success.example));
  };

  const draw = () => {
    document.title = spec.info.title;
    at("title").textContent = spec.info.title;
    at("version").textContent = `Version ${spec.info.version}`;
    const here = location.pathname.replace(/\/docs\/?$/, "");
    at("raw").href = `${here}/openapi.json`;
    at("base").value = location.protocol === "file:" ? spec.servers[0].url : `${location.origin}${here}`;
    at("introduction").append(...paragraphs(spec.info.description));
    const order = JSON.parse(at("order").textContent);
    const all = order.map((path) => [path, spec.paths[path].post]);
    for (const tag of spec.tags) {
      const tagged = all.filter(([, operation]) => operation.tags.includes(tag.name));
      at("operations").append(make("section", { "aria-labelledby": `tag-${tag.name}` },
        make("h2", { id: `tag-${tag.name}` }, tag.name[0].toUpperCase() + tag.name.slice(1)),
        make("p", {}, tag.description),
        ...tagged.map(([path, operation]) => article(path, operation))));
      at("index").append(make("h2", {}, tag.name), make("ul", {}, ...tagged.map(([path, operation]) =>
        make("li", { "data-words": `${path} ${operation.summary}`.toLowerCase() },
          make("a", { href: `#${anchor(operation)}` }, operation.summary)))));
    }
    at("index").append(make("h2", {}, "more"), make("ul", {}, make("li", { "data-words": "errors" },
      make("a", { href: "#errors" }, "Errors"))));
    const responses = Object.entries(all[0][1].responses).filter(([status]) => status !== "200");
    at("error-table").append(table("Errors", ["Status", "Code", "Message"], responses.map(([status, reference]) => {
      const { example } = resolve(reference).content["application/json"];
      return make("tr", {}, make("th", { scope: "row" }, status),
        make("td", { class: "kind" }, example.code), make("td", {}, example.message));
    })));
  };

  const follow = () => {
    const links = [...document.querySelectorAll("nav a")];
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((entry) => entry.isIntersecting))
        for (const link of links) {
          if (link.hash === `#${entry.target.id}`) link.setAttribute("aria-current", "true");
          else link.removeAttribute("aria-current");
        }
    }, { rootMargin: "0px 0px -75% 0px" });
    document.querySelectorAll("article").forEach((article) => seen.observe(article));
  };

  const listen = () => {
    for (const id of ["base", "key"]) at(id).addEventListener("input", () => curls.forEach((draw) => draw()));
    at("filter").addEventListener("input", (event) => {
      const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const item of document.querySelectorAll("nav li"))
        item.hidden = !words.every((word) => item.dataset.words.includes(word));
    });
  };

  draw();
  listen();
  follow();
})();
