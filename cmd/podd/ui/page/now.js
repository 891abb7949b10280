// The view "Now": whether the node is well and what is wrong, then what the daemon does and what has failed lately.

import { get, since } from "./api.js";
import { el, reconcile, section, setCells, setLink, setText, table } from "./dom.js";
import { bytes, duration, parseDuration } from "./format.js";
import { partOf } from "./stages.js";
import { trend } from "./trend.js";

const stuckAfter = 10; // seconds in one stage
const historyInterval = 10; // seconds
const failuresShown = 10;
const startsShown = 1000;

/** Shows the view in root. */
export function now(root) {
  const lists = [problemList(), operationList(), pullList(), sessionList(), failureList(), startTrend(), handlerList()];
  root.append(...lists.map((list) => list.section));
  const past = { failures: [], starts: [] };
  let asked = -Infinity;
  return async (status) => {
    for (const list of lists) list.fill(status, past);
    if (performance.now() - asked < historyInterval * 1000) return;
    asked = performance.now();
    past.failures = (await get("history", { failed: true, limit: failuresShown })).items;
    past.starts = (await get("history", { verb: "RunPodSandbox", limit: startsShown })).items;
    for (const list of lists) list.fill(status, past);
  };
}

function stageOf(operation) {
  return operation.stages?.at(-1) ?? { name: "begin", took: operation.took };
}

function isStuck(operation) {
  return parseDuration(stageOf(operation).took) >= stuckAfter;
}

function keyOf(o) {
  return `${o.verb} ${o.pod} ${o.container} ${o.began}`;
}

/** Returns a list of problems: its element, and a function that fills it. */
export function problems() {
  const list = el("ul", { class: "problems" });
  const create = () => el("li", {}, el("strong"), el("span"), el("code"));
  return {
    view: list,
    fill(found) {
      reconcile(list, found, (p) => `${p.pod} ${p.text}`, create, (node, p) => {
        setLink(node.children[0], p.name || "node", p.pod);
        setText(node.children[1], p.text);
        setText(node.children[2], p.next ?? "");
      });
    },
  };
}

function problemList() {
  const list = problems();
  const fine = el("p", { class: "fine good" });
  return {
    section: section("Problems", fine, list.view),
    fill(status, { failures }) {
      list.fill(status.problems ?? []);
      fine.hidden = status.problems?.length > 0;
      setText(fine, `Everything is fine: ${wellness(status)}, ` +
        (failures.length ? `last failure ${duration(since(failures[0].began))} ago` : "no failure in the history"));
    },
  };
}

// wellness returns "24 running, 0 waiting".
function wellness({ pods }) {
  const states = (pods ?? []).flatMap((pod) => [pod.state, ...(pod.containers ?? []).map((c) => c.state)]);
  const waiting = states.filter((state) => state === "creating" || state === "created").length;
  return `${states.filter((state) => state === "running").length} running, ${waiting} waiting`;
}

// part returns a section with a table, which is hidden while it has no rows.
function part(title, columns, itemsOf, key, update) {
  const { view, body, row } = table(title, columns);
  const all = section(title, view);
  return {
    section: all,
    fill(status, past) {
      reconcile(body, itemsOf(status, past) ?? [], key, row, (tr, item) => update(tr, item, status));
      all.hidden = !body.rows.length;
    },
  };
}

function operationList() {
  const columns = [["Pod or container", "name"], ["Operation", ""], ["Stage", "stage"], ["In stage", "number"],
    ["In all", "number"]];
  return part("In progress", columns, (status) => status.operations, keyOf, (tr, o) => {
    const stage = stageOf(o);
    tr.classList.toggle("stuck", isStuck(o));
    tr.cells[2].className = `stage ${partOf(stage.name).name}`;
    setLink(tr.cells[0], o.name, o.pod);
    setCells(tr, [o.verb, stage.name, duration(parseDuration(stage.took)), duration(parseDuration(o.took))], 1);
  });
}

function pullList() {
  const columns = [["Image", "name"], ["Stage", ""], ["Progress", ""], ["Bytes", "number"], ["Layers", "number"],
    ["Age", "number"]];
  return part("Pulls", columns, (status) => status.pulls, (p) => p.ref + p.startedAt, fillPull);
}

function fillPull(tr, pull) {
  const layers = pull.layers ?? [];
  const [, , place] = tr.cells;
  const bar = place.firstChild ?? place.appendChild(el("progress", { "aria-label": "bytes of the layers" }));
  if (pull.bytesTotal > 0) {
    bar.max = pull.bytesTotal;
    bar.value = pull.bytesDone;
  }
  setCells(tr, [pull.ref, pull.stage]);
  const done = layers.filter((l) => l.state !== "downloading").length;
  setCells(tr, [`${bytes(pull.bytesDone)} of ${bytes(pull.bytesTotal)}`, `${done} of ${layers.length}`,
    duration(since(pull.startedAt))], 3);
}

function sessionList() {
  const columns = [["Pod", "name"], ["Session", ""], ["Container", "name"], ["Age", "number"], ["Idle", "number"]];
  const key = (s) => `${s.kind} ${s.pod} ${s.container} ${s.started}`;
  return part("Exec, attach and port-forward", columns, (status) => status.sessions, key, (tr, s, { pods }) => {
    const isIts = (pod) => pod.id === s.pod || pod.containers?.some((c) => c.id === s.container);
    const pod = (pods ?? []).find(isIts);
    setLink(tr.cells[0], pod?.name ?? s.pod, pod?.id);
    const container = pod?.containers?.find((c) => c.id === s.container)?.name ?? "";
    setCells(tr, [s.kind, container, duration(since(s.started)), duration(s.idle_seconds)], 1);
  });
}

function failureList() {
  const columns = [["Pod or container", "name"], ["Operation", ""], ["Ago", "number"], ["Failed in", "stage"],
    ["Error", "long"]];
  return part("Last failures", columns, (_, { failures }) => failures, keyOf, (tr, o) => {
    const stage = o.failed_in || stageOf(o).name;
    tr.cells[3].className = `stage ${partOf(stage).name}`;
    setLink(tr.cells[0], o.name, o.pod);
    setCells(tr, [o.verb, duration(since(o.began)), stage, o.error ?? ""], 1);
  });
}

function startTrend() {
  const { view, fill } = trend();
  const all = section("Starts of pods", view);
  return {
    section: all,
    fill(_, { starts }) {
      all.hidden = starts.length < 2;
      if (!all.hidden) fill(starts);
    },
  };
}

function handlerList() {
  const itemsOf = (status) => (status.conditions ?? []).filter((c) => !c.ready && c.type.startsWith("HandlerReady/"));
  return part("Handlers that are not ready", [["Handler", ""], ["Why", "long"]], itemsOf, (c) => c.type, (tr, c) =>
    setCells(tr, [c.type.split("/")[1], c.message ?? ""]));
}
