// How many pods were started and failed, and the time that one of a hundred took, in equal parts of the time for which
// there is a history.

import { draw, el, setText } from "./dom.js";
import { count, duration, parseDuration, quantile } from "./format.js";

const bins = 60;
const height = 40;

/** Returns two pictures, and a function that fills them with operations, the newest first. */
export function trend() {
  const [starts, slow] = [1, 2].map(() => draw("svg", {
    viewBox: `0 0 ${bins} ${height}`, preserveAspectRatio: "none", class: "trend", "aria-hidden": "true",
  }));
  const [startsText, slowText] = [el("p"), el("p")];
  return {
    view: el("div", { class: "trends" }, el("div", {}, startsText, starts), el("div", {}, slowText, slow)),
    fill(operations) {
      const began = operations.map((o) => Date.parse(o.began)).filter((time) => time > 0);
      const from = Math.min(...began);
      const span = Math.max(...began) - from || 1;
      const parts = Array.from({ length: bins }, () => ({ ok: [], failed: 0 }));
      for (const o of operations) {
        const part = parts[Math.min(bins - 1, Math.floor((bins * (Date.parse(o.began) - from)) / span))];
        if (!part) continue;
        if (o.outcome === "ok") part.ok.push(parseDuration(o.took));
        else part.failed++;
      }
      const failed = operations.filter((o) => o.outcome !== "ok").length;
      const took = operations.filter((o) => o.outcome === "ok").map((o) => parseDuration(o.took)).sort((a, b) => a - b);
      setText(startsText, `${count(operations.length, "start")} in ${duration(span / 1000)}, ${failed} failed`);
      setText(slowText, `p99 of a start: ${duration(quantile(took, 0.99))}`);
      drawBars(starts, parts.map(({ ok, failed }) => [["bad", failed], ["runtime", ok.length]]));
      drawBars(slow, parts.map(({ ok }) => [["image", quantile(ok.sort((a, b) => a - b), 0.99)]]));
    },
  };
}

// drawBars draws a stack of [class, size] for each bin, the first below.
function drawBars(picture, stacks) {
  const most = Math.max(...stacks.map((stack) => stack.reduce((sum, [, size]) => sum + size, 0))) || 1;
  picture.replaceChildren(...stacks.flatMap((stack, x) => {
    let y = height;
    return stack.filter(([, size]) => size > 0).map(([name, size]) => {
      const h = (size / most) * height;
      y -= h;
      return draw("rect", { class: name, x, y, width: 0.8, height: h });
    });
  }));
}
