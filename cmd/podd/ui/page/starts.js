// The view "Starts": the last hundred starts of pods on one axis of time, and the parts of the node that make the
// slowest ones slow.

import { get } from "./api.js";
import { legend } from "./chart.js";
import { draw, el, keepStop, reconcile, section, setCells, setText, table, walkable } from "./dom.js";
import { count, duration, parseDuration, percent, quantile } from "./format.js";
import { partOf, parts } from "./stages.js";

const shown = 100;
const interval = 10_000; // milliseconds between two reads of the history, which is on the node's disk
const height = 4; // of a bar
const width = 1000;
const cut = 2; // times p90: where the axis ends, so that one slow start does not hide the others

const startVerbs = ["RunPodSandbox", "CreateContainer", "StartContainer"];

/** Shows the view in root. */
export function starts(root) {
  const chart = barChart();
  const summary = el("p", { class: "finding", role: "status" });
  const numbers = ["p50", "p90", "p99", "Slowest", "Share of the slowest"].map((title) => [title, "number"]);
  const { view, body, row } = table("Time by part", [["Part", "part"], ...numbers]);
  let asked = -Infinity;
  const select = el("select", { "aria-label": "Operation", onchange: () => { asked = -Infinity; fill(); } },
    el("option", { value: "" }, "whole start"), ...startVerbs.map((verb) => el("option", {}, verb)));
  root.append(section(`The last ${shown}`, el("p", { class: "controls" }, select, summary), chart.view, legend()),
    section("Where the time goes", view));
  return fill;

  async function fill() {
    if (performance.now() - asked < interval) return;
    asked = performance.now();
    const runs = await lastRuns(select.value ? [select.value] : startVerbs);
    setText(summary, finding(runs));
    chart.fill(runs);
    fillParts(body, row, runs);
  }
}

// lastRuns returns the last starts, the fastest first: {id, name, whole, times}, with seconds by the name of a part.
async function lastRuns(verbs) {
  const answers = await Promise.all(verbs.map((verb, i) => get("history", { verb, limit: i ? 5 * shown : shown })));
  const runs = new Map();
  answers.forEach(({ items }, i) => {
    for (const operation of items) {
      const id = verbs.length > 1 ? operation.pod : `${operation.container || operation.pod} ${operation.began}`;
      if (operation.outcome !== "ok" || (i > 0 && !runs.has(id))) continue;
      if (!runs.has(id)) runs.set(id, { id, pod: operation.pod, name: operation.name, whole: 0, times: new Map() });
      addTimes(runs.get(id), operation);
    }
  });
  return [...runs.values()].sort((a, b) => a.whole - b.whole);
}

function addTimes(run, operation) {
  let rest = parseDuration(operation.took);
  run.whole += rest;
  const add = (part, seconds) => run.times.set(part, (run.times.get(part) ?? 0) + seconds);
  for (const stage of operation.stages ?? []) {
    const took = parseDuration(stage.took);
    add(partOf(stage.name).name, took);
    rest -= took;
  }
  if (rest > 0) add("other", rest);
}

// finding says in a sentence which part makes the slowest runs slower than most.
function finding(runs) {
  if (!runs.length) return "The history has no start yet.";
  const wholes = runs.map((run) => run.whole);
  const [p50, p99] = [quantile(wholes, 0.5), quantile(wholes, 0.99)];
  const slow = runs.find((run) => run.whole >= p99);
  const excess = parts.map((part) => {
    return { part, time: (slow.times.get(part.name) ?? 0) - quantile(timesOf(runs, part), 0.5) };
  });
  const worst = excess.reduce((a, b) => (b.time > a.time ? b : a));
  const text = `${count(runs.length, "run")}: p50 ${duration(p50)}, p99 ${duration(p99)}.`;
  if (p99 - p50 <= 0) return text;
  return `${text} Of the ${duration(p99 - p50)} between them, ${worst.part.title} takes ` +
    `${percent(Math.min(worst.time, p99 - p50), p99 - p50)}.`;
}

function timesOf(runs, part) {
  return runs.map((run) => run.times.get(part.name) ?? 0).sort((a, b) => a - b);
}

function fillParts(body, row, runs) {
  const slowest = runs.at(-1);
  const used = parts.filter((part) => runs.some((run) => run.times.get(part.name) > 0));
  reconcile(body, used, (part) => part.name, row, (tr, part) => {
    const times = timesOf(runs, part);
    tr.cells[0].className = `stage ${part.name}`;
    const own = slowest.times.get(part.name) ?? 0;
    const quantiles = [0.5, 0.9, 0.99].map((q) => duration(quantile(times, q)));
    setCells(tr, [part.title, ...quantiles, duration(own), percent(own, slowest.whole)]);
  });
}

// barChart has a bar for each run, the fastest on top, all from the same zero. Each bar is a link to its pod.
function barChart() {
  const picture = draw("svg", { class: "runs", preserveAspectRatio: "none", role: "group", "aria-label": "Starts" });
  const scale = el("p", { class: "scale" }, el("span", {}, "0"), el("span"), el("span"));
  const chosen = el("p", { class: "note", role: "status" },
    "Each bar is a start: point at one, or use the arrow keys; click or Enter opens its pod.");
  const view = el("div", {}, picture, scale, chosen);
  // not on the picture: Chromium makes one with listeners for the focus a stop of the Tab key
  walkable(view, "a", (link) => setText(chosen, link.getAttribute("aria-label")));
  return {
    view,
    fill(runs) {
      const most = endOfAxis(runs);
      picture.setAttribute("viewBox", `0 0 ${width} ${Math.max(1, runs.length) * height}`);
      picture.style.setProperty("height", `${Math.max(1, runs.length) * height}px`);
      reconcile(picture, runs, (run) => run.id, () => draw("a", { tabindex: -1 }), (link, run) =>
        fillRun(link, run, runs.indexOf(run), width / most));
      keepStop(picture, "a");
      setText(scale.children[1], duration(most / 2));
      const longer = runs.filter((run) => run.whole > most).length;
      setText(scale.children[2], duration(most) + (longer ? ` (${longer} longer)` : ""));
    },
  };
}

function endOfAxis(runs) {
  const wholes = runs.map((run) => run.whole);
  return Math.min(wholes.at(-1) ?? 1, cut * quantile(wholes, 0.9)) || 1;
}

function fillRun(link, run, index, scale) {
  link.setAttribute("href", `#pod/${encodeURIComponent(run.pod)}`);
  link.setAttribute("aria-label", `${run.name}: ${duration(run.whole)}. ` + parts
    .filter((part) => run.times.get(part.name) >= 1e-4)
    .map((part) => `${part.title} ${duration(run.times.get(part.name))}`).join(", "));
  let x = 0;
  const rects = [draw("rect", { class: "hit", x: 0, y: index * height, width, height })];
  for (const part of parts) {
    const w = (run.times.get(part.name) ?? 0) * scale;
    rects.push(draw("rect", { class: part.name, x, y: index * height, width: w, height: height - 1 }));
    x += w;
  }
  link.replaceChildren(...rects);
}
