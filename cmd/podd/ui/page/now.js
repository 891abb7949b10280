// The view "Now": what the daemon is doing, what is stuck and in which stage, and what is wrong.

import { get, since } from "./api.js";
import { el, reconcile, row, section, setCells, setText, table } from "./dom.js";
import { bytes, duration, parseDuration } from "./format.js";
import { partOf } from "./stages.js";

const stuckAfter = 10; // seconds in one stage
const historyInterval = 10; // seconds
const failuresShown = 10;

/** Shows the view in root. */
export function now(root) {
  const lists = [problemList(), operationList(), pullList(), failureList(), sessionList(), handlerList()];
  root.append(...lists.map((list) => list.section));
  return async (status) => {
    for (const list of lists) await list.fill(status);
  };
}

function stageOf(operation) {
  return operation.stages?.at(-1) ?? { name: "begin", took: operation.took };
}

function isStuck(operation) {
  return parseDuration(stageOf(operation).took) >= stuckAfter;
}

function problemList() {
  const list = el("ul", { class: "problems" });
  const none = el("p", { class: "none good" }, "Everything is fine.");
  return {
    section: section("Problems", none, list),
    fill(status) {
      const found = status.problems ?? [];
      none.hidden = found.length > 0;
      const create = () => el("li", {}, el("strong", {}, el("a")), el("span"), el("code"));
      reconcile(list, found, (p) => `${p.pod} ${p.text}`, create, (node, p) => {
        const link = node.firstChild.firstChild;
        setText(link, p.name ?? "node");
        if (p.pod) link.setAttribute("href", `#pod/${encodeURIComponent(p.pod)}`);
        setText(node.children[1], p.text);
        setText(node.lastChild, p.next ?? "");
      });
    },
  };
}

function operationList() {
  const columns = ["Operation", "Pod or container", "Stage", "#In stage", "#In all"];
  const [view, body] = table("Operations in progress", columns);
  const classes = ["", "name", "", "number", "number"];
  return {
    section: section("In progress", view),
    fill(status) {
      const key = (o) => `${o.verb} ${o.pod} ${o.container} ${o.began}`;
      reconcile(body, status.operations ?? [], key, () => row(classes), (tr, o) => {
        const stage = stageOf(o);
        tr.classList.toggle("stuck", isStuck(o));
        tr.cells[2].className = `stage ${partOf(stage.name).name}`;
        const [inStage, inAll] = [stage, o].map(({ took }) => duration(parseDuration(took)));
        setCells(tr, [o.verb, o.name, stage.name, inStage, inAll]);
      });
      view.hidden = !body.rows.length;
    },
  };
}

function pullList() {
  const [view, body] = table("Pulls", ["Image", "Stage", "Progress", "#Bytes", "#Layers", "#Age"]);
  const part = section("Pulls", view);
  const create = () => {
    const tr = row(["name", "", "", "number", "number", "number"]);
    tr.cells[2].append(el("progress", { "aria-label": "bytes of the layers" }));
    return tr;
  };
  return {
    section: part,
    fill(status) {
      reconcile(body, status.pulls ?? [], (p) => p.ref + p.startedAt, create, fillPull);
      part.hidden = !body.rows.length;
    },
  };
}

function fillPull(tr, pull) {
  const layers = pull.layers ?? [];
  const bar = tr.cells[2].firstChild;
  if (pull.bytesTotal > 0) {
    bar.max = pull.bytesTotal;
    bar.value = pull.bytesDone;
  }
  [pull.ref, pull.stage].forEach((text, i) => setText(tr.cells[i], text));
  setText(tr.cells[3], `${bytes(pull.bytesDone)} of ${bytes(pull.bytesTotal)}`);
  setText(tr.cells[4], `${layers.filter((l) => l.state !== "downloading").length} of ${layers.length}`);
  setText(tr.cells[5], duration(since(pull.startedAt)));
}

function failureList() {
  const [view, body] = table("Last failures", ["Ago", "Operation", "Pod or container", "Stage", "Error"]);
  const part = section("Last failures", view);
  let failures = [];
  let asked = -Infinity;
  return {
    section: part,
    async fill() {
      if (performance.now() - asked > historyInterval * 1000) {
        asked = performance.now();
        failures = (await get("history", { failed: true, limit: failuresShown })).items;
      }
      const classes = ["number", "", "name", "", "name"];
      reconcile(body, failures, (o) => `${o.verb} ${o.pod} ${o.container} ${o.began}`, () => row(classes), (tr, o) =>
        setCells(tr, [duration(since(o.began)), o.verb, o.name, stageOf(o).name, o.error ?? ""]));
      part.hidden = !failures.length;
    },
  };
}

function sessionList() {
  const [view, body] = table("Sessions", ["Session", "Container or pod", "#Age", "#Idle"]);
  const part = section("Exec, attach and port-forward", view);
  return {
    section: part,
    fill(status) {
      const key = (s) => `${s.kind} ${s.pod} ${s.container} ${s.started}`;
      reconcile(body, status.sessions ?? [], key, () => row(["", "id", "number", "number"]), (tr, s) => {
        const id = (s.container || s.pod).slice(0, 13);
        setCells(tr, [s.kind, id, duration(since(s.started)), duration(s.idle_seconds)]);
      });
      part.hidden = !body.rows.length;
    },
  };
}

function handlerList() {
  const [view, body] = table("Handlers that are not ready", ["Handler", "Why"]);
  const part = section("Handlers that are not ready", view);
  return {
    section: part,
    fill(status) {
      const handlers = (status.conditions ?? []).filter((c) => !c.ready && c.type.startsWith("HandlerReady/"));
      reconcile(body, handlers, (c) => c.type, () => row(["", "name"]), (tr, c) =>
        setCells(tr, [c.type.split("/")[1], c.message ?? ""]));
      part.hidden = !body.rows.length;
    },
  };
}
