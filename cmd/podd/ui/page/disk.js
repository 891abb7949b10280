// The view "Disk": a treemap of the disk space of images and of what the containers of each pod have written.

import { get } from "./api.js";
import { el, keepStop, reconcile, section, setCells, setLink, setText, table, walkable } from "./dom.js";
import { bytes, count, percent } from "./format.js";
import { treemap } from "./treemap.js";

const interval = 10_000; // milliseconds between two reads
const smallest = 0.0005; // part of the whole that gets a cell of its own
const rowsShown = 50;

/** Shows the view in root. */
export function disk(root) {
  const picture = el("ul", { class: "treemap", "aria-label": "Disk space" });
  const chosen = el("p", { class: "note name", role: "status" }, "Each cell is an image, or the containers of a pod.");
  const columns = [["Name", "name"], ["Kind", ""], ["Size", "number"], ["Of all", "number"], ["Used by", ""]];
  const { view, body, row } = table("Largest", columns);
  const free = el("meter", { "aria-label": "Used part of the disk" });
  const summary = el("p", { class: "finding" });
  walkable(picture, "li", (cell) => setText(chosen, cell.getAttribute("aria-label")));
  root.append(section("Disk space", summary, free, picture, chosen), section(`The largest ${rowsShown}`, view));
  let asked = -Infinity;
  return async () => {
    if (performance.now() - asked < interval) return;
    asked = performance.now();
    const answer = await get("disk", { limit: 10000 });
    const items = itemsOf(answer);
    const total = items.reduce((sum, item) => sum + item.size, 0);
    const [images, containers] = [answer.images.items.length, answer.containers.items.length];
    const size = Number(answer.size) || 1;
    Object.assign(free, { max: size, high: 0.85 * size, value: size - answer.free || 0 });
    setText(summary, `${bytes(answer.free)} of ${bytes(answer.size)} are free. podd uses ${bytes(total)}: ` +
      `${count(images, "image")} with ${bytes(answer.layers)} of layers, ` +
      `${count(containers, "container")} with ${bytes(total - answer.layers)} written.`);
    fillMap(picture, withRest(items, total), total);
    reconcile(body, items.slice(0, rowsShown), keyOf, row, (tr, item) => {
      setLink(tr.cells[0], item.name, item.kind === "pod" && item.id);
      setCells(tr, [item.kind, bytes(item.size), percent(item.size, total), item.used], 1);
    });
  };
}

// itemsOf returns what takes space, the largest first: each image with the layers that only it has, the layers that
// images share, and the writable layers of each pod.
function itemsOf(answer) {
  const images = answer.images.items.map((image) => ({
    kind: "image", id: image.id, name: image.names?.[0] ?? image.id, size: image.unique,
    used: image.used_by ? count(image.used_by, "container") : image.pinned ? "pinned" : "nothing",
  }));
  const unique = images.reduce((sum, image) => sum + image.size, 0);
  const shared = { kind: "shared", id: "", name: "layers that images share", size: answer.layers - unique, used: "" };
  return [...images, shared, ...podsOf(answer.containers.items)]
    .filter((item) => item.size > 0).sort((a, b) => b.size - a.size);
}

function podsOf(containers) {
  const pods = new Map();
  for (const container of containers) {
    const id = container.pod || container.id;
    const name = container.name ? container.name.split("/").slice(0, 2).join("/") : id;
    const pod = pods.get(id) ?? { kind: "pod", id, name, size: 0, containers: 0 };
    pod.size += container.bytes;
    pod.containers++;
    pod.used = count(pod.containers, "container");
    pods.set(id, pod);
  }
  return [...pods.values()];
}

// withRest replaces the items that are too small to be seen by one.
function withRest(items, total) {
  const large = items.filter((item) => item.size >= smallest * total);
  const small = items.slice(large.length);
  if (!small.length) return large;
  const size = small.reduce((sum, item) => sum + item.size, 0);
  const rest = { kind: "rest", id: "", name: `${small.length} smaller ones`, size, used: "" };
  return [...large, rest].sort((a, b) => b.size - a.size);
}

// hueOf gives each namespace a colour.
function hueOf(text) {
  let hue = 0;
  for (const c of text.slice(0, 64)) hue = (hue * 31 + c.codePointAt(0)) % 360;
  return hue;
}

function keyOf(item) {
  return `${item.kind} ${item.id}`;
}

function fillMap(picture, items, total) {
  const box = { x: 0, y: 0, width: 200, height: 100 };
  const cells = new Map(treemap(items.map((item) => item.size), box).map((cell, i) => [items[i], cell]));
  reconcile(picture, items, keyOf, () => el("li", { tabindex: -1 }, el("b"), el("span")), (node, item) => {
    const cell = cells.get(item);
    node.className = `cell ${item.kind}`;
    node.style.setProperty("--hue", hueOf(item.name.split("/")[0]));
    setText(node.children[0], item.name);
    setText(node.children[1], bytes(item.size));
    node.setAttribute("aria-label", `${item.kind}: ${item.name}, ${bytes(item.size)}, ${percent(item.size, total)}` +
      (item.used && `, used by ${item.used}`));
    node.style.setProperty("left", `${cell.x / 2}%`);
    node.style.setProperty("top", `${cell.y}%`);
    node.style.setProperty("width", `${cell.width / 2}%`);
    node.style.setProperty("height", `${cell.height}%`);
  });
  keepStop(picture, "li");
}
