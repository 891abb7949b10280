// Elements of the page. All names come from others (pods, images, registries): they become text nodes and attributes,
// never HTML. The page's policy makes the browser refuse the latter.

const svg = "http://www.w3.org/2000/svg";

/** Returns an element. Children are elements or texts. Of attributes, on* are event handlers, style is an object. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Returns an element of SVG, as el does. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svg, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Sets the text of a node if it differs: an unchanged node costs no layout. */
export function setText(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

const kept = new WeakMap();

/**
 * Makes the children of parent those of the items, in their order. An item whose key was there before keeps its
 * element, and with it the focus; others are created. update fills every element.
 */
export function reconcile(parent, items, key, create, update) {
  const before = kept.get(parent) ?? new Map();
  const now = new Map();
  for (const item of items) {
    let k = String(key(item));
    while (now.has(k)) k += "'";
    now.set(k, item);
  }
  for (const [k, node] of before) if (!now.has(k)) node.remove();
  const elements = new Map();
  let next = parent.firstChild;
  for (const [k, item] of now) {
    const node = before.get(k) ?? create(item);
    update?.(node, item);
    elements.set(k, node);
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  kept.set(parent, elements);
}

/**
 * Makes the elements of a list that match selector one stop of the Tab key: arrows, Home and End move within it. They
 * and the mouse call onmove with the new one.
 */
export function walkable(list, selector, onmove = () => {}) {
  const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  list.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    const stops = [...list.querySelectorAll(selector)];
    const at = stops.indexOf(event.target.closest(selector));
    if (at < 0) return;
    event.preventDefault();
    stops[Math.min(stops.length - 1, Math.max(0, at + step))].focus();
  });
  list.addEventListener("pointerover", (event) => {
    const stop = event.target.closest(selector);
    if (stop) onmove(stop);
  });
  list.addEventListener("focusin", (event) => {
    const stop = event.target.closest(selector);
    if (!stop) return;
    for (const other of list.querySelectorAll(`${selector}[tabindex="0"]`)) other.setAttribute("tabindex", -1);
    stop.setAttribute("tabindex", 0);
    onmove(stop);
  });
}

/** Makes exactly one element of a walkable list a stop of the Tab key, after the list has changed. */
export function keepStop(list, selector) {
  if (list.querySelector(`${selector}[tabindex="0"]`)) return;
  list.querySelector(selector)?.setAttribute("tabindex", 0);
}

/** Returns a section with a heading and a body. */
export function section(title, ...body) {
  return el("section", {}, el("h2", {}, title), ...body);
}

/**
 * Returns a table: its element, its body, and a function that returns a new row of empty cells. A column is a title and
 * a class. On a phone a row is a card, in which numbers follow their title.
 */
export function table(label, columns) {
  const heads = columns.map(([title, kind]) => el("th", { scope: "col", class: kind }, title));
  const body = el("tbody");
  const row = () => el("tr", {}, ...columns.map(([title, kind]) => el("td", { class: kind, "data-title": title })));
  return { view: el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, ...heads)), body), body, row };
}

/** Sets the texts of a row's cells, from one on. */
export function setCells(tr, texts, from = 0) {
  texts.forEach((text, i) => setText(tr.cells[from + i], text));
}

/** Makes the only child of a node a link to a pod with that text, or a text if the id is unknown. */
export function setLink(node, text, pod) {
  const link = node.firstElementChild ?? node.appendChild(el("a"));
  setText(link, text);
  if (pod) link.setAttribute("href", `#pod/${encodeURIComponent(pod)}`);
  else link.removeAttribute("href");
}
