// Points as pixels, written directly into a buffer: 600,000 take a few milliseconds, without a GPU.

// The pixels of each look, as offsets into a buffer that is `stride` wide.
export function stampsOf(looks, stride) {
  return looks.map(({ size, inside }) => {
    const reach = Math.floor(size / 2);
    const offsets = [];
    for (let dy = -reach; dy <= reach; dy++)
      for (let dx = -reach; dx <= reach; dx++) if (inside(dx, dy)) offsets.push(dy * stride + dx);
    return Int32Array.from(offsets);
  });
}

// Fills discs (x, y, r on the map, and a packed colour), row by row of pixels; for those that are far outside, nothing.
export function fillDiscs(pixels, { width, height, margin }, view, discs) {
  const stride = width + 2 * margin;
  for (const { x, y, r, colour } of discs) {
    const [cx, cy, reach] = [x * view.scale + view.x, view.y - y * view.scale, r * view.scale];
    const [top, bottom] = [Math.max(-margin, Math.ceil(cy - reach)), Math.min(height + margin - 1, Math.floor(cy + reach))];
    for (let row = top; row <= bottom; row++) {
      const half = Math.sqrt(Math.max(0, reach * reach - (row - cy) * (row - cy)));
      const [left, right] = [Math.max(-margin, Math.round(cx - half)), Math.min(width + margin, Math.round(cx + half))];
      const start = (row + margin) * stride + margin;
      if (right > left) pixels.fill(colour, start + left, start + right);
    }
  }
}

// Draws the points `order` (numbers, the lowest first) and returns how many of them are in view.
// pixels: (height + 2 margin) rows of (width + 2 margin) colours; a stamp reaches no further than the margin.
// view: pixel x = xy[2i] * view.scale + view.x, pixel y = view.y - xy[2i+1] * view.scale
export function splat(pixels, { width, height, margin }, view, xy, order, look, palette, stamps) {
  const stride = width + 2 * margin;
  const { scale, x: left, y: top } = view;
  let shown = 0;
  for (let at = 0; at < order.length; at++) {
    const i = order[at];
    const x = Math.floor(xy[2 * i] * scale + left);
    const y = Math.floor(top - xy[2 * i + 1] * scale);
    if (x < 0 || y < 0 || x >= width || y >= height) continue;
    shown++;
    const colour = palette[look[i]];
    const middle = (y + margin) * stride + x + margin;
    const stamp = stamps[look[i]];
    if (stamp.length === 1) pixels[middle] = colour;
    else for (let p = 0; p < stamp.length; p++) pixels[middle + stamp[p]] = colour;
  }
  return shown;
}

// Numbers of the points with a look, those of higher rank later; look 0 is hidden. rank: by look.
export function orderOf(look, rank) {
  const ranks = Math.max(...rank) + 1;
  const counts = new Uint32Array(ranks + 1);
  for (let i = 0; i < look.length; i++) if (look[i]) counts[rank[look[i]] + 1]++;
  for (let r = 0; r < ranks; r++) counts[r + 1] += counts[r];
  const order = new Uint32Array(counts[ranks]);
  for (let i = 0; i < look.length; i++) if (look[i]) order[counts[rank[look[i]]]++] = i;
  return order;
}
