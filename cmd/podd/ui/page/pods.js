// The view "Pods": how many there are by state and age, and the list of those that were selected.

import { since } from "./api.js";
import { el, keepStop, reconcile, row, section, setText, table, walkable } from "./dom.js";
import { count, duration, parseDuration } from "./format.js";
import { partOf } from "./stages.js";

const states = ["creating", "ready", "stopping", "notready"];
const ages = [
  { title: "under 1 min", below: 60 },
  { title: "1 to 10 min", below: 600 },
  { title: "10 to 60 min", below: 3600 },
  { title: "1 to 24 h", below: 86400 },
  { title: "over 1 day", below: Infinity },
];

/** Shows the view in root. */
export function pods(root) {
  const selection = { text: "", state: "", age: "" };
  let last = { pods: [], operations: [] };
  const matrix = ageMatrix(selection, () => fill(last));
  const list = podList();
  const search = el("input", {
    type: "search", size: 30, placeholder: "namespace, name or id", "aria-label": "Filter pods",
    oninput: () => { selection.text = search.value; fill(last); },
  });
  const shown = el("span", { role: "status" });
  root.append(section("By state and age", matrix.view),
    section("List", el("p", { class: "controls" }, search, shown), list.view));

  function fill(status) {
    last = status;
    const all = (status.pods ?? []).map((pod) => ({ ...pod, age: since(pod.created) }));
    const found = all.filter((pod) => selects(selection, pod)).sort((a, b) => a.age - b.age);
    matrix.fill(all);
    list.fill(found, status);
    setText(shown, `${found.length} of ${count(all.length, "pod")}, the newest first`);
  }
  return fill;
}

function selects({ text, state, age }, pod) {
  return (!state || pod.state === state) && (age === "" || ageOf(pod) === age) &&
    (pod.name.includes(text) || pod.id.startsWith(text));
}

function ageOf(pod) {
  return ages.findIndex((age) => pod.age < age.below);
}

// ageMatrix has a button for each state and age, which selects its pods, or all when it is pressed again.
function ageMatrix(selection, onchange) {
  const heads = ages.map((age) => el("th", { scope: "col", class: "number" }, age.title));
  const body = el("tbody");
  const buttons = [];
  for (const state of states) {
    const cells = ages.map((age, index) => {
      const button = el("button", { type: "button", tabindex: -1, onclick });
      buttons.push({ button, state, index, title: age.title });
      return el("td", { class: "number" }, button);
      function onclick() {
        const pressed = selection.state === state && selection.age === index;
        Object.assign(selection, pressed ? { state: "", age: "" } : { state, age: index });
        onchange();
      }
    });
    body.append(el("tr", {}, el("th", { scope: "row", class: `state ${state}` }, state), ...cells));
  }
  walkable(body, "button");
  keepStop(body, "button");
  return {
    view: el("table", { class: "matrix", "aria-label": "Pods by state and age" },
      el("thead", {}, el("tr", {}, el("td"), ...heads)), body),
    fill(all) {
      for (const { button, state, index, title } of buttons) {
        const n = all.filter((pod) => pod.state === state && ageOf(pod) === index).length;
        setText(button, n);
        button.setAttribute("aria-label", `${n} ${state}, ${title}`);
        button.classList.toggle("zero", n === 0);
        button.setAttribute("aria-pressed", selection.state === state && selection.age === index);
      }
    },
  };
}

function podList() {
  const [view, body] = table("Pods", ["State", "Pod", "Containers", "Doing", "#Age"]);
  walkable(body, "a");
  const create = (pod) => {
    const tr = row(["state", "name", "", "", "number"]);
    tr.cells[1].append(el("a", { href: `#pod/${encodeURIComponent(pod.id)}`, tabindex: -1 }));
    return tr;
  };
  return {
    view,
    fill(found, { operations, problems }) {
      const doing = new Map((operations ?? []).map((o) => [o.pod, o]));
      const wrong = new Map((problems ?? []).map((p) => [p.pod, p.text]));
      reconcile(body, found, (pod) => pod.id, create,
        (tr, pod) => fillPod(tr, pod, doing.get(pod.id), wrong.get(pod.id)));
      keepStop(body, "a");
    },
  };
}

function fillPod(tr, pod, operation, problem) {
  const [state, name, containers, doing, age] = tr.cells;
  state.className = problem ? "state bad" : `state ${pod.state}`;
  setText(state, pod.state);
  setText(name.firstChild, pod.name);
  setText(containers, summary(pod.containers ?? []));
  const stage = operation?.stages?.at(-1);
  doing.className = stage ? `stage ${partOf(stage.name).name}` : "";
  setText(doing, stage ? `${operation.verb}: ${stage.name}, ${duration(parseDuration(stage.took))}` : problem ?? "");
  setText(age, duration(pod.age));
}

// summary returns "2 running, 1 exited".
function summary(containers) {
  const counts = new Map();
  for (const { state } of containers) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, n]) => `${n} ${state}`).join(", ");
}
