// The layout of a treemap, "squarified": Bruls, Huizing and van Wijk, 2000. Pure functions.

/**
 * Returns a rectangle {x, y, width, height} for each of the sizes, which are sorted, the largest first, and above 0.
 * Together they fill box; their areas are as the sizes.
 */
export function treemap(sizes, box) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const areas = sizes.map((size) => (size / total) * box.width * box.height);
  const out = [];
  let rest = { ...box };
  for (let from = 0; from < areas.length; ) {
    const to = endOfRow(areas, from, Math.min(rest.width, rest.height));
    rest = layRow(areas.slice(from, to), rest, out);
    from = to;
  }
  return out;
}

// endOfRow returns how far a row along a side goes until a further area would make its worst rectangle narrower.
function endOfRow(areas, from, side) {
  let sum = areas[from];
  let to = from + 1;
  let worst = narrowness(areas[from], areas[from], sum, side);
  for (; to < areas.length; to++) {
    const next = narrowness(areas[from], areas[to], sum + areas[to], side);
    if (next > worst) break;
    worst = next;
    sum += areas[to];
  }
  return to;
}

// narrowness returns the ratio of the sides of the narrowest rectangle of a row: that of its largest or smallest area.
function narrowness(largest, smallest, sum, side) {
  return Math.max((side * side * largest) / (sum * sum), (sum * sum) / (side * side * smallest));
}

// layRow adds the rectangles of a row along the shorter side of box, and returns what is left of box.
function layRow(areas, box, out) {
  const sum = areas.reduce((a, b) => a + b, 0);
  const upright = box.width >= box.height;
  const depth = sum / (upright ? box.height : box.width);
  let at = upright ? box.y : box.x;
  for (const area of areas) {
    const length = area / depth;
    out.push(upright
      ? { x: box.x, y: at, width: depth, height: length }
      : { x: at, y: box.y, width: length, height: depth });
    at += length;
  }
  return upright
    ? { ...box, x: box.x + depth, width: box.width - depth }
    : { ...box, y: box.y + depth, height: box.height - depth };
}
