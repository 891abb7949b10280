// Starts the page: logs in, shows the view that the address names, and renews it while the page is visible.
//
// A view is a function that is called with its element in the page and the rest of the address, and returns a function
// that fills it with the node's status, every interval.

import { get, login, since } from "./api.js";
import { setText } from "./dom.js";
import { count, duration } from "./format.js";
import { disk } from "./disk.js";
import { now } from "./now.js";
import { pod } from "./pod.js";
import { pods } from "./pods.js";
import { starts } from "./starts.js";

const views = { now, pods, pod, starts, disk };
const interval = 2000;

const root = document.getElementById("view");
const links = [...document.querySelectorAll("nav a")];
const [host, verdict, summary, failure] = ["host", "verdict", "summary", "failure"].map(
  (id) => document.getElementById(id));
let fill; // of the view that is shown
let timer;
let last; // status that came, at the time came
let came;

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
  if (last) Promise.resolve(fill(last)).catch(() => {}); // what refresh says
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  const filling = fill;
  try {
    last = await get("status", { limit: 10000 });
    came = Date.now();
    if (filling === fill) await filling(last);
    report("");
  } catch (error) {
    report(error.message);
  }
  if (filling === fill && !document.hidden) timer = setTimeout(refresh, interval);
}

function report(error) {
  setText(failure, error && last ? `podd does not answer, what is shown is old: ${error}` : error);
  failure.hidden = !error;
  root.classList.toggle("old", !!error);
  showHeader();
}

// showHeader says which node this is, whether it is well, and how old the data are.
function showHeader() {
  if (!last && failure.hidden) return;
  const found = last?.problems?.length ?? 0;
  const state = !failure.hidden ? "no answer" : found ? count(found, "problem") : "no problems";
  setText(verdict, state);
  verdict.className = state === "no problems" ? "good" : "bad";
  document.title = `${last?.host ?? "podd"}: ${state}`;
  if (!last) return;
  setText(host, last.host ?? "podd");
  setText(summary, `podd ${last.version}, ` + (failure.hidden ? `up ${duration(since(last.started))}, ` : "") +
    `updated ${Math.round((Date.now() - came) / 1000)} s ago` + (last.omitted > 0 ? `, ${last.omitted} items left out` : ""));
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

setInterval(showHeader, 1000);
login().then(show, (error) => report(error.message));
