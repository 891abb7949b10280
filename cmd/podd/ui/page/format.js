// Conversions between the texts of the admin API and what is shown. Pure functions.

const seconds = { h: 3600, m: 60, s: 1, ms: 1e-3, "µs": 1e-6, "μs": 1e-6, us: 1e-6, ns: 1e-9 };

/** Returns the seconds of a duration as Go writes it, "1m2.5s"; 0 for anything else. */
export function parseDuration(text) {
  let sum = 0;
  for (const [, number, unit] of String(text).matchAll(/([\d.]+)(h|ms|m|s|µs|μs|us|ns)/g)) {
    sum += number * seconds[unit];
  }
  return sum;
}

/** Returns a duration in seconds as text, in the largest unit of which there is one or more. */
export function duration(s) {
  if (s >= 2 * 86400) return `${Math.floor(s / 86400)} d`;
  if (s >= 2 * 3600) return `${Math.floor(s / 3600)} h`;
  if (s >= 120) return `${Math.floor(s / 60)} min`;
  if (s >= 1) return `${rounded(s)} s`;
  if (s >= 1e-3) return `${rounded(s * 1e3)} ms`;
  return `${Math.round(s * 1e6)} µs`;
}

/** Returns a number of bytes as text. */
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1024;
  return `${unit ? rounded(n) : n} ${units[unit]}`;
}

/** Returns a part of a whole as text. */
export function percent(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "0 %";
}

/** Returns the value below or at which a fraction q of the sorted values lies (nearest rank). */
export function quantile(sorted, q) {
  return sorted.length ? sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] : 0;
}

/** Returns "1 pod" or "2 pods". */
export function count(n, noun) {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}

function rounded(n) {
  return n < 10 ? Math.round(n * 10) / 10 : Math.round(n);
}
