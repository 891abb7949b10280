// The view of one pod: what it is, its containers with the ends of their logs, its start on one axis of time, and the
// stages of its last operations. A pod that is gone is looked up in the history.

import { get, since } from "./api.js";
import { chart, legend, stageBars } from "./chart.js";
import { el, reconcile, section, setCells, setText, table } from "./dom.js";
import { duration, parseDuration } from "./format.js";
import { problems } from "./now.js";
import { cores, memory } from "./pods.js";

const startVerbs = ["RunPodSandbox", "CreateContainer", "StartContainer"];
const startLasts = 600; // seconds after its begin in which an operation still belongs to the pod's start
const slowInterval = 5000; // milliseconds between two reads of the logs and the use
const logLines = 12;

/** Shows the view of the pod with that id in root. */
export function pod(root, id) {
  const title = el("h2", { class: "name title" });
  const facts = el("dl", { class: "facts" });
  const wrong = problems();
  const containers = containerList();
  const start = chart("Start", (key) => document.getElementById(key)?.scrollIntoView());
  const gaps = el("p", { class: "note" });
  const operations = el("div");
  root.append(el("p", { class: "back" }, el("a", { href: "#pods" }, "All pods")), title, wrong.view, facts,
    containers.section, section("Start", start.view, gaps, legend()),
    section("Stages of the last operations", operations));
  let [used, asked] = [{}, -Infinity];
  const show = (status, found) => {
    setText(title, found.name);
    wrong.fill((status.problems ?? []).filter((p) => p.pod === found.pod?.id));
    fillFacts(facts, found, used);
    containers.fill(found.pod?.containers ?? [], used);
    fillStart(start, gaps, found.operations);
    reconcile(operations, found.operations, keyOf, newOperation, fillOperation);
  };
  return async (status) => {
    const found = await lookUp(id);
    show(status, found);
    if (!found.pod || performance.now() - asked < slowInterval) return;
    asked = performance.now();
    await containers.readLogs(found.pod.containers);
    used = (await get("usage", { limit: 10000 })).items?.find((pod) => pod.id === found.pod.id) ?? {};
    show(status, found);
  };
}

function keyOf(o) {
  return `${o.verb} ${o.container} ${o.began}`;
}

// lookUp returns the pod, its name and operations, in the order in which they began.
async function lookUp(id) {
  try {
    const { pods: [found], operations: active } = await get("status", { pod: id });
    const ended = [...(found.operations ?? []), ...found.containers.flatMap((c) => c.operations ?? [])];
    const operations = ended.concat((active ?? []).filter((o) => o.pod === found.id));
    if (operations.length) return { pod: found, name: found.name, operations: inOrder(operations) };
  } catch (error) {
    if (error.status !== 404) throw error;
  }
  const { items } = await get("history", { about: id, limit: 100 });
  return { name: items[0]?.name ?? id, operations: inOrder(items) };
}

function fillFacts(list, { pod, operations }, used) {
  const all = !pod ? [["State", operations.length ? "gone: from the history" : "unknown to podd and its history"]] : [
    ["State", pod.state + (pod.reason ? `: ${pod.reason}` : "")], ["Age", duration(since(pod.created))],
    ["Address", pod.ips?.join(", ") || "the node's"], ["Handler", pod.handler], ["CPU", cores(used)],
    ["Memory", memory(used)], ["Cgroup", pod.cgroup], ["Id", pod.id],
  ];
  const create = () => el("div", {}, el("dt"), el("dd"));
  reconcile(list, all.filter(([, value]) => value), ([name]) => name, create, (node, [name, value]) => {
    setText(node.firstChild, name);
    setText(node.lastChild, value);
  });
}

function containerList() {
  const numbers = ["CPU", "Memory", "Starts", "Age"].map((title) => [title, "number"]);
  const columns = [["State", "state"], ["Container", "name"], ["Image", "name"], ...numbers];
  const { view, body, row } = table("Containers", columns);
  const logs = el("div");
  const all = section("Containers", view, logs);
  const texts = new Map();
  return {
    section: all,
    async readLogs(containers) {
      for (const { id } of containers) {
        texts.set(id, await get("log", { container: id }).then((log) => lastLines(log.text), (error) => error.message));
      }
    },
    fill(containers, used) {
      all.hidden = !containers.length;
      reconcile(body, containers, (c) => c.id, row, (tr, c) =>
        fillContainer(tr, c, used.containers?.find((one) => one.id === c.id)));
      const newLog = (c) => el("figure", {}, el("figcaption", {}, `Log of ${c.name}`),
        el("pre", { tabindex: 0, role: "region", "aria-label": `Log of ${c.name}` }));
      reconcile(logs, containers.filter((c) => texts.get(c.id)), (c) => c.id, newLog, (node, c) =>
        setText(node.lastChild, texts.get(c.id)));
    },
  };
}

function fillContainer(tr, c, used) {
  const ended = c.state === "exited";
  tr.cells[0].className = ended && c.reason !== "Completed" ? "state bad" : `state ${c.state}`;
  const why = c.reason ? `${c.reason}, exit code ${c.exit_code ?? 0}${c.message ? `: ${c.message}` : ""}` : "";
  const state = `${c.state}${why && `: ${why}`}${ended ? `, ${duration(since(c.finished))} ago` : ""}`;
  setCells(tr, [state, c.name, c.image ?? "", cores(used), memory(used), (c.attempt ?? 0) + 1,
    duration(since(c.created))]);
}

// lastLines returns the end of a log in the CRI's format with the time of day and the text of each line.
function lastLines(text) {
  return text.trimEnd().split("\n").slice(-logLines)
    .map((line) => line.replace(/^\S*T(\d\d:\d\d:\d\d)\S* std(?:out|err) [FP] ?/, "$1 ")).join("\n");
}

function inOrder(operations) {
  return operations.sort((a, b) => Date.parse(a.began) - Date.parse(b.began));
}

// fillStart shows the operations that began the pod. Between two of them podd had nothing to do.
function fillStart(view, gaps, operations) {
  const first = operations.find((o) => o.verb === startVerbs[0]);
  if (!first) {
    view.fill([], 1);
    setText(gaps, "podd does not remember the start of this pod.");
    return;
  }
  const offset = (o) => (Date.parse(o.began) - Date.parse(first.began)) / 1000;
  const of = operations.filter((o) => startVerbs.includes(o.verb) && offset(o) >= 0 && offset(o) < startLasts);
  const whole = Math.max(...of.map((o) => offset(o) + parseDuration(o.took)));
  view.fill(of.map((o) => ({
    key: keyOf(o), label: labelOf(o), value: duration(parseDuration(o.took)),
    bars: stageBars(o, offset(o)),
  })), whole);
  const own = of.reduce((sum, o) => sum + parseDuration(o.took), 0);
  setText(gaps, `${duration(whole)} from the first call to the end of the last; podd worked for ${duration(own)}. ` +
    "In the gaps the kubelet had not called yet, or waited for a pull.");
}

function labelOf(operation) {
  return operation.container ? `${operation.verb} ${operation.name.split("/").at(-1)}` : operation.verb;
}

function newOperation(operation) {
  const view = chart(operation.verb);
  const [head, error] = [el("h3"), el("p", { class: "error" })];
  const node = el("div", { class: "operation", id: keyOf(operation) }, head, error, view.view);
  node.chart = view;
  return node;
}

function fillOperation(node, o) {
  const whole = parseDuration(o.took) || 1e-6;
  const ended = o.outcome || "in progress";
  setText(node.children[0], `${labelOf(o)}: ${duration(whole)}, ${duration(since(o.began))} ago, ${ended}`);
  setText(node.children[1], o.error ?? "");
  const rows = stageBars(o).map((bar, i) => ({
    key: i, label: o.stages[i].name, value: duration(bar.to - bar.from), bars: [bar],
  }));
  node.chart.fill(rows, whole);
}
