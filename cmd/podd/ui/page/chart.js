// Bars on an axis of time. A row is {label, value, bars}; a bar is {from, to, part, title}, with times in seconds.

import { el, reconcile, setText } from "./dom.js";
import { parseDuration } from "./format.js";
import { partOf, parts } from "./stages.js";

/**
 * Returns a chart: its element, and a function that shows rows on an axis from 0 to whole. onopen, if any, is called
 * with the key of a row that is clicked.
 */
export function chart(label, onopen) {
  const list = el("ol", { class: "chart", "aria-label": label });
  const create = () => el("li", {}, el("span", { class: "label name" }), el("span", { class: "track" }),
    el("span", { class: "value number" }));
  return {
    view: list,
    fill(rows, whole) {
      reconcile(list, rows, (r) => r.key ?? r.label, create, (li, r) => {
        const [name, track, value] = li.children;
        if (onopen) li.onclick = () => onopen(r.key);
        li.title = r.bars.map((bar) => bar.title).join("\n");
        setText(name, r.label);
        setText(value, r.value);
        reconcile(track, r.bars, (bar) => `${bar.part.name} ${bar.from}`, () => el("i"), (node, bar) =>
          place(node, bar, whole));
      });
    },
  };
}

function place(node, bar, whole) {
  node.className = bar.part.name;
  node.title = bar.title;
  node.style.setProperty("left", `${(100 * bar.from) / whole}%`);
  node.style.setProperty("width", `${(100 * (bar.to - bar.from)) / whole}%`);
}

/** Returns a bar for each stage of an operation that began so many seconds after the axis. */
export function stageBars(operation, offset = 0) {
  return (operation.stages ?? []).map((stage) => {
    const from = offset + parseDuration(stage.after);
    const title = `${stage.name} ${stage.took}`;
    return { from, to: from + parseDuration(stage.took), part: partOf(stage.name), title };
  });
}

/** Returns the legend of the colours. */
export function legend() {
  return el("ul", { class: "legend", "aria-label": "Colours" },
    ...parts.map((part) => el("li", {}, el("i", { class: part.name }), part.title)));
}

