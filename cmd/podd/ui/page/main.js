// Starts the page: logs in, shows the view that the address names, and renews it while the page is visible.
//
// A view is a function that is called with its element in the page and the rest of the address, and returns a function
// that fills it with the node's status, every interval.

import { get, login } from "./api.js";
import { setText } from "./dom.js";
import { count } from "./format.js";
import { disk } from "./disk.js";
import { now } from "./now.js";
import { pod } from "./pod.js";
import { pods } from "./pods.js";
import { starts } from "./starts.js";

const views = { now, pods, pod, starts, disk };
const interval = 2000;

const root = document.getElementById("view");
const links = [...document.querySelectorAll("nav a")];
let fill; // of the view that is shown
let timer;

function show() {
  const [name, argument = ""] = location.hash.slice(1).split("/");
  const view = Object.hasOwn(views, name) ? name : "now";
  const current = view === "pod" ? "pods" : view;
  for (const link of links) {
    if (link.hash === `#${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  root.replaceChildren();
  fill = views[view](root, argument);
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  const filling = fill;
  try {
    const status = await get("status", { limit: 10000 });
    summarize(status);
    root.classList.remove("old");
    if (filling === fill) await filling(status);
    report("");
  } catch (error) {
    report(error.message);
    setText(document.getElementById("summary"), "podd does not answer: what is shown is old");
    document.title = "podd: no answer";
    root.classList.add("old");
  }
  if (filling === fill && !document.hidden) timer = setTimeout(refresh, interval);
}

function summarize(status) {
  const found = status.problems?.length ?? 0;
  const state = found ? count(found, "problem") : "no problems";
  setText(document.getElementById("summary"), `${status.host}, podd ${status.version}: ${count(status.pods?.length ?? 0, "pod")}, ` +
    `${count(status.operations?.length ?? 0, "operation")} in progress, ${state}` +
    (status.omitted > 0 ? `, ${status.omitted} items left out` : ""));
  document.title = `podd: ${state}`;
}

function report(message) {
  const line = document.getElementById("failure");
  setText(line, message);
  line.hidden = !message;
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const typing = event.target.matches("input, select");
  if (event.key === "Escape") {
    if (typing && event.target.value) return;
    if (location.hash.startsWith("#pod/")) history.back();
    else root.focus();
  } else if (!typing && links[event.key - 1]) {
    links[event.key - 1].click();
  } else if (!typing && event.key === "/") {
    event.preventDefault(); // Firefox would search in the page
  }
}

// onKeyUp moves to the filter when the key is up again, so that it does not type into it.
function onKeyUp(event) {
  if (event.key === "/" && !event.target.matches("input, select")) root.querySelector("input[type=search]")?.focus();
}

addEventListener("hashchange", () => {
  show();
  root.focus();
});
addEventListener("keydown", onKey);
addEventListener("keyup", onKeyUp);
document.addEventListener("visibilitychange", () => document.hidden || refresh());

login().then(show, (error) => report(error.message));
