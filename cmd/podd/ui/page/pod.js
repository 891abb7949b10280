// The view of one pod: its start on one axis of time, and the stages of its last operations. A pod that is gone is
// looked up in the history.

import { get, since } from "./api.js";
import { chart, legend, stageBars } from "./chart.js";
import { el, reconcile, section, setText } from "./dom.js";
import { count, duration, parseDuration } from "./format.js";

const startVerbs = ["RunPodSandbox", "CreateContainer", "StartContainer"];
const startLasts = 600; // seconds after its begin in which an operation still belongs to the pod's start

/** Shows the view of the pod with that id in root. */
export function pod(root, id) {
  const title = el("h2", { class: "name" });
  const facts = el("p");
  const start = chart("Start");
  const gaps = el("p", { class: "note" });
  const operations = el("div");
  root.append(el("p", {}, el("a", { href: "#pods" }, "All pods")), title, facts,
    section("Start", start.view, gaps, legend()), section("Stages of the last operations", operations));
  return async () => {
    const found = await lookUp(id);
    setText(title, found.name);
    setText(facts, found.facts);
    fillStart(start, gaps, found.operations);
    reconcile(operations, found.operations, (o) => `${o.verb} ${o.container} ${o.began}`, newOperation, fillOperation);
  };
}

// lookUp returns the pod's name, facts and operations, in the order in which they began.
async function lookUp(id) {
  try {
    const { pods: [found], operations: active } = await get("status", { pod: id });
    const ended = [...(found.operations ?? []), ...found.containers.flatMap((c) => c.operations ?? [])];
    const operations = ended.concat((active ?? []).filter((o) => o.pod === found.id));
    if (operations.length) return { name: found.name, facts: factsOf(found), operations: inOrder(operations) };
  } catch (error) {
    if (error.status !== 404) throw error;
  }
  const { items } = await get("history", { about: id, limit: 100 });
  const facts = items.length ? "From the history." : "The history has nothing about it.";
  return { name: items[0]?.name ?? id, facts, operations: inOrder(items) };
}

function factsOf(pod) {
  const containers = pod.containers.map((c) => `${c.name} (${c.state}${exitOf(c)})`).join(", ");
  const number = count(pod.containers.length, "container");
  return `${pod.state}, ${duration(since(pod.created))} old, ${number}${containers && ": "}${containers}. ${pod.id}`;
}

function exitOf({ reason, exit_code: code, message }) {
  return reason ? `: ${reason}, exit code ${code ?? 0}${message ? `: ${message}` : ""}` : "";
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
    key: `${o.verb} ${o.container}`, label: labelOf(o), value: duration(parseDuration(o.took)),
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
  const node = el("div", { class: "operation" }, el("h3"), el("p", { class: "error" }), view.view);
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
