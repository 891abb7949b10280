// The view "Pods": the pods with their state and use, by filter and in the order that was chosen.

import { get, since } from "./api.js";
import { el, keepStop, reconcile, section, setCells, setLink, setText, table, walkable } from "./dom.js";
import { bytes, count, duration, parseDuration } from "./format.js";
import { partOf } from "./stages.js";

const usageInterval = 5000; // milliseconds

const filters = {
  All: () => true,
  Failing: (pod) => pod.problem,
  Creating: (pod) => pod.state === "creating",
  Stopping: (pod) => pod.state === "stopping",
  "Not ready": (pod) => pod.state === "notready",
};

// orders are by column; each value of a pod is compared, the largest first.
const orders = {
  State: (pod) => (pod.problem ? 2 : pod.state === "ready" ? 0 : 1),
  Pod: (pod) => pod.name,
  Containers: (pod) => pod.containers?.length ?? 0,
  CPU: (pod) => pod.used?.cpu_nanocores ?? -1,
  Memory: (pod) => pod.used?.memory_bytes ?? -1,
  Age: (pod) => pod.age,
};

/** Shows the view in root. */
export function pods(root) {
  const choice = { text: "", filter: "All", order: "State", reverse: false };
  let last = { pods: [], operations: [] };
  const used = new Map();
  let asked = -Infinity;
  const chips = filterChips(choice, show);
  const list = podList(choice, show);
  const search = el("input", {
    type: "search", size: 30, placeholder: "namespace, name or id", "aria-label": "Filter pods",
    oninput: () => { choice.text = search.value; show(); },
  });
  const shown = el("span", { role: "status" });
  root.append(section("Pods", el("div", { class: "controls" }, chips.view, search, shown), list.view));

  function show() {
    const wrong = new Map((last.problems ?? []).map((p) => [p.pod, p.text]));
    const all = (last.pods ?? []).map((pod) => (
      { ...pod, age: since(pod.created), problem: wrong.get(pod.id), used: used.get(pod.id) }));
    const found = all.filter((pod) => selects(choice, pod)).sort(comparison(choice));
    chips.fill(all);
    list.fill(found, last.operations);
    setText(shown, `${found.length} of ${count(all.length, "pod")}`);
  }
  return async (status) => {
    last = status;
    show();
    if (performance.now() - asked < usageInterval) return;
    asked = performance.now();
    const { items } = await get("usage", { limit: 10000 });
    used.clear();
    for (const pod of items ?? []) used.set(pod.id, pod);
    show();
  };
}

function selects({ text, filter }, pod) {
  return filters[filter](pod) && (pod.name.includes(text) || pod.id.startsWith(text));
}

function comparison({ order, reverse }) {
  const sign = reverse ? -1 : 1;
  return (a, b) => {
    const [x, y] = [orders[order](a), orders[order](b)];
    const larger = typeof x === "string" ? x.localeCompare(y) : y - x;
    return sign * larger || a.age - b.age;
  };
}

// filterChips has a button for each filter, with the number of its pods.
function filterChips(choice, onchange) {
  const buttons = Object.keys(filters).map((name) =>
    el("button", { type: "button", tabindex: -1, onclick: () => { choice.filter = name; onchange(); } }));
  const view = el("div", { class: "chips", role: "group", "aria-label": "Pods by state" }, ...buttons);
  walkable(view, "button");
  keepStop(view, "button");
  return {
    view,
    fill(all) {
      Object.entries(filters).forEach(([name, selected], i) => {
        const n = all.filter(selected).length;
        setText(buttons[i], `${name} ${n}`);
        buttons[i].classList.toggle("bad", name === "Failing" && n > 0);
        buttons[i].setAttribute("aria-pressed", choice.filter === name);
      });
    },
  };
}

function podList(choice, onchange) {
  const columns = [["State", "state"], ["Pod", "name"], ["Containers", ""], ["CPU", "number"], ["Memory", "number"],
    ["Age", "number"], ["Doing", "long"]];
  const { view, body, row } = table("Pods", columns);
  const heads = [...view.tHead.rows[0].cells].slice(0, -1);
  for (const head of heads) {
    const order = head.textContent;
    const onclick = () => {
      Object.assign(choice, { order, reverse: choice.order === order && !choice.reverse });
      onchange();
    };
    head.replaceChildren(el("button", { type: "button", tabindex: -1, title: `sort by ${order}`, onclick }, order));
  }
  walkable(view.tHead, "button");
  keepStop(view.tHead, "button");
  walkable(body, "a");
  return {
    view,
    fill(found, operations) {
      for (const head of heads) {
        if (head.textContent !== choice.order) head.removeAttribute("aria-sort");
        else head.setAttribute("aria-sort", (choice.order === "Pod") === choice.reverse ? "descending" : "ascending");
      }
      const doing = new Map((operations ?? []).map((o) => [o.pod, o]));
      reconcile(body, found, (pod) => pod.id, row, (tr, pod) => fillPod(tr, pod, doing.get(pod.id)));
      keepStop(body, "a");
    },
  };
}

function fillPod(tr, pod, operation) {
  const [state, name] = tr.cells;
  const doing = tr.cells[6];
  state.className = pod.problem ? "state bad" : `state ${pod.state}`;
  setText(state, pod.problem ? "failing" : pod.state);
  setLink(name, pod.name, pod.id);
  if (!name.firstChild.hasAttribute("tabindex")) name.firstChild.setAttribute("tabindex", -1);
  setCells(tr, [summary(pod.containers ?? []), cores(pod.used), memory(pod.used), duration(pod.age)], 2);
  const stage = operation?.stages?.at(-1);
  doing.className = stage ? `long stage ${partOf(stage.name).name}` : "long";
  const working = stage && `${operation.verb}: ${stage.name}, ${duration(parseDuration(stage.took))}`;
  setText(doing, working || pod.problem || "");
}

/** Returns the memory that is used, "" if it is unknown. */
export function memory(used) {
  return used?.memory_bytes == null ? "" : bytes(used.memory_bytes);
}

/** Returns the CPU time that is used, in cores, "" if it is unknown. */
export function cores(used) {
  return used?.cpu_nanocores == null ? "" : (used.cpu_nanocores / 1e9).toFixed(3);
}

// summary returns "2 running, 1 exited".
function summary(containers) {
  const counts = new Map();
  for (const { state } of containers) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, n]) => `${n} ${state}`).join(", ");
}
