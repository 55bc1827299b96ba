'use strict';
// Padding, resizing, sampling at positions, and what moves channels.

const { functions: F } = require('../../ops.js');
const T = require('../../tensor.js');
const { define, ints, wantOneOf, kindOf } = require('../../arguments.js');
const { shell } = require('./loss.js');
const { ShapeError, ValueError } = require('../../errors.js');

const shapeOf = (x) => `[${x.shape.join(', ')}]`;

/** (before, after) for the last dimension, then the one before it; modes 'constant', 'reflect', 'replicate', 'circular'. */
const pad = define('pad', ['x', 'padding*'], { mode: 'constant', value: 0 }, (x, padding, { mode, value }) => {
  if (!Array.isArray(padding)) throw new ValueError(`pad: padding must be an array of numbers, got ${kindOf(padding)}`, 'pad');
  return F.pad(x, padding, mode, value);
});

// ---- resizing: what the record has no mode for, by matrices

function cubic(at, a) {
  const x = Math.abs(at);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}
/** [input, weight] pairs of output i. */
function taps(i, size, step, mode, alignCorners, antialias) {
  if (mode === 'nearest-exact') return [[Math.min(Math.floor((i + 0.5) * step), size - 1), 1]];
  if (antialias) {
    // The kernel is as wide as the step, cut at the border, and its weights add up to 1.
    const wide = Math.max(step, 1);
    const reach = (mode === 'bicubic' ? 2 : 1) * wide;
    const center = step * (i + 0.5);
    const first = Math.max(Math.trunc(center - reach + 0.5), 0);
    const last = Math.min(Math.trunc(center + reach + 0.5), size);
    const made = [];
    for (let j = first; j < last; ++j) {
      const at = (j - center + 0.5) / wide;
      made.push([j, mode === 'bicubic' ? cubic(at, -0.5) : Math.max(0, 1 - Math.abs(at))]);
    }
    const total = made.reduce((sum, [, w]) => sum + w, 0);
    return made.map(([j, w]) => [j, w / total]);
  }
  const at = alignCorners ? i * step : (i + 0.5) * step - 0.5;
  const low = Math.floor(at);
  return [-1, 0, 1, 2].map((j) => [Math.min(Math.max(low + j, 0), size - 1), cubic(at - low - j, -0.75)]);
}
/** The last dimensions of x, one after the other, each times a matrix. */
function byMatrices(x, sizes, scales, mode, alignCorners, antialias) {
  let y = x;
  sizes.forEach((out, d) => {
    const dim = x.ndim - sizes.length + d;
    const size = y.shape[dim];
    if (size < 1 || out < 1) throw new ShapeError(`interpolate: [${x.shape.join(', ')}] cannot become [${sizes.join(', ')}]`, 'interpolate');
    const step = alignCorners ? (out > 1 ? (size - 1) / (out - 1) : 0) : scales[d] ? 1 / scales[d] : size / out;
    const rows = new Float64Array(size * out);
    for (let i = 0; i < out; ++i) for (const [j, w] of taps(i, size, step, mode, alignCorners, antialias)) rows[j * out + i] += w;
    const matrix = T.tensor(rows, { shape: [size, out] }).to(x.dtype).to(x.device);
    y = F.matmul(y.movedim([dim], [-1]), matrix).movedim([-1], [dim]);
  });
  return y.contiguous();
}
const MODES = ['nearest', 'nearest-exact', 'linear', 'bilinear', 'trilinear', 'bicubic', 'area'];
/** Resizes [N, C, L], [N, C, H, W] or [N, C, D, H, W] to {size} or by {scaleFactor}. {antialias} goes with 'bilinear' and 'bicubic'. */
const interpolate = define('interpolate', ['x'], { size: null, scaleFactor: null, mode: 'nearest', alignCorners: null, recomputeScaleFactor: false,
  antialias: false }, (x, { size, scaleFactor, mode, alignCorners, recomputeScaleFactor, antialias }) => {
  const name = 'interpolate';
  const n = x.ndim - 2;
  wantOneOf(mode, MODES, name, 'mode');
  if (n < 1 || n > 3) throw new ShapeError(`${name}: wants [N, C, L], [N, C, H, W] or [N, C, D, H, W], got ${shapeOf(x)}`, name);
  if (alignCorners !== null && ['nearest', 'nearest-exact', 'area'].includes(mode)) throw new ValueError(`${name}: alignCorners does not go with mode '${mode}'`, name);
  if (antialias && !(n === 2 && (mode === 'bilinear' || mode === 'bicubic'))) {
    throw new ValueError(`${name}: antialias goes with modes 'bilinear' and 'bicubic' and [N, C, H, W] only`, name);
  }
  if (mode === 'bicubic' && n !== 2) throw new ShapeError(`${name}: mode 'bicubic' wants [N, C, H, W], got ${shapeOf(x)}`, name);
  if ((size === null) === (scaleFactor === null)) throw new ValueError(`${name}: needs either size or scaleFactor`, name);
  const align = Boolean(alignCorners);
  let sizes = size === null ? null : ints(size, n, name, 'size');
  let scales = new Array(n).fill(null);
  if (!sizes) {
    const given = Array.isArray(scaleFactor) ? scaleFactor : new Array(n).fill(scaleFactor);
    if (given.length !== n || !given.every((f) => typeof f === 'number' && f > 0 && Number.isFinite(f))) {
      throw new ValueError(`${name}: scaleFactor wants one or ${n} positive numbers, got ${Array.isArray(scaleFactor) ? `[${given.map(String)}]` : kindOf(scaleFactor)}`, name);
    }
    if (mode !== 'area' && !recomputeScaleFactor) {
      scales = given;
      if (given.every((f) => f === given[0]) && !antialias && mode !== 'bicubic' && mode !== 'nearest-exact') {
        return F.interpolate(x, null, given[0], mode, align);
      }
    }
    sizes = given.map((f, i) => Math.floor(x.shape[i + 2] * f));
  }
  if (mode === 'area') return F.adaptive_avg_pool(x, sizes);
  if (mode === 'bicubic' || mode === 'nearest-exact' || antialias) return byMatrices(x, sizes, scales, mode, align, antialias);
  if (scales.every((f) => f === null)) return F.interpolate(x, sizes, null, mode, align);
  // A factor for each dimension: one after the other.
  let y = x;
  scales.forEach((f, d) => {
    const rest = y.movedim([2 + d], [-1]);
    const shape = [...rest.shape];
    const step = F.interpolate(rest.reshape([1, rest.numel / shape[shape.length - 1], shape[shape.length - 1]]), null, f, mode === 'nearest' ? mode : 'linear', align);
    y = step.reshape([...shape.slice(0, -1), step.shape[2]]).movedim([-1], [2 + d]);
  });
  return y.contiguous();
});
const upsampleNearest = define('upsampleNearest', ['x'], { size: null, scaleFactor: null }, (x, o) => interpolate(x, { ...o, mode: 'nearest' }));
const upsampleBilinear = define('upsampleBilinear', ['x'], { size: null, scaleFactor: null },
  (x, o) => interpolate(x, { ...o, mode: 'bilinear', alignCorners: true }));

// ---- sampling

/**
 * Positions for gridSample(): theta [N, 2, 3] (or [N, 3, 4]) maps a result of `size` [N, C, H, W] ([N, C, D, H, W]) into the
 * input, both from -1 to 1.
 */
const affineGrid = define('affineGrid', ['theta', 'size*'], { alignCorners: false }, (theta, size, { alignCorners }) => {
  const n = Array.isArray(size) ? size.length - 2 : 0;
  if ((n !== 2 && n !== 3) || theta.shape.join() !== [size[0], n, n + 1].join()) {
    throw new ShapeError(`affineGrid: theta of ${shapeOf(theta)} does not belong to a size of [${[size].flat().map(String).join(', ')}]`, 'affineGrid');
  }
  const spatial = ints(size.slice(2), n, 'affineGrid', 'size');
  const like = { dtype: theta.dtype, device: theta.device };
  const places = [...spatial].reverse().map((v, i) => {
    const line = v > 1 ? F.linspace(-1, 1, v, like) : T.zeros([v], like);
    return (alignCorners ? line : line.mul((v - 1) / v)).reshape(spatial.map((_, d) => (d === n - 1 - i ? v : 1))).expand(spatial);
  });
  const base = F.stack([...places, T.ones(spatial, like)], n).reshape([-1, n + 1]);
  return F.matmul(base, theta.transpose(1, 2)).reshape([size[0], ...spatial, n]);
});
/** x folded into [low, high]. */
function reflected(x, low, high) {
  const span = high - low;
  if (span <= 0) return F.mul(x, 0);
  const from = F.abs(F.sub(x, low));
  const rest = F.fmod(from, span);
  return F.add(F.where(F.eq(F.remainder(F.floor(F.div(from, span)), 2), 0), rest, F.sub(span, rest)), low);
}
/**
 * x [N, C, H, W] at the positions grid [N, H', W', 2], (x, y) from -1 to 1 (or [N, C, D, H, W] at [N, D', H', W', 3]):
 * [N, C, H', W']. Modes 'bilinear' and 'nearest'; outside are 'zeros', the 'border' or a 'reflection'.
 */
const gridSample = define('gridSample', ['x', 'grid'], { mode: 'bilinear', paddingMode: 'zeros', alignCorners: false }, (x, grid, o) => {
  const n = x.ndim - 2;
  if ((n !== 2 && n !== 3) || grid.ndim !== n + 2 || grid.shape[n + 1] !== n || grid.shape[0] !== x.shape[0]) {
    throw new ShapeError(`gridSample: a grid of ${shapeOf(grid)} does not belong to an input of ${shapeOf(x)}`, 'gridSample');
  }
  const nearest = wantOneOf(o.mode, ['bilinear', 'nearest'], 'gridSample', 'mode') === 'nearest';
  wantOneOf(o.paddingMode, ['zeros', 'border', 'reflection'], 'gridSample', 'paddingMode');
  const [batch, channels, ...spatial] = x.shape;
  if (spatial.some((s) => s === 0)) throw new ShapeError(`gridSample: an input of ${shapeOf(x)} has nothing to sample`, 'gridSample');
  // Of each dimension: positions and weights.
  const corners = spatial.map((size, d) => {
    let at = F.add(grid.select(-1, n - 1 - d), 1);
    at = o.alignCorners ? F.mul(at, (size - 1) / 2) : F.div(F.sub(F.mul(at, size), 1), 2);
    if (o.paddingMode === 'reflection') at = o.alignCorners ? reflected(at, 0, size - 1) : reflected(at, -0.5, size - 0.5);
    if (o.paddingMode !== 'zeros') at = F.clamp(at, 0, size - 1);
    if (nearest) return [[F.round(at).detach(), null]];
    const low = F.floor(at).detach();
    return [[low, F.sub(F.add(low, 1), at)], [F.add(low, 1), F.sub(at, low)]];
  });
  const flat = x.reshape([batch, channels, x.numel / Math.max(1, batch * channels)]);
  const count = grid.numel / Math.max(1, batch * n);
  let total = null;
  for (let choice = 0; choice < (nearest ? 1 : 2 ** n); ++choice) {
    let index = null;
    let weight = null;
    let inside = null;
    spatial.forEach((size, d) => {
      const [place, share] = corners[d][nearest ? 0 : (choice >> d) & 1];
      const within = F.logical_and(F.ge(place, 0), F.le(place, size - 1));
      inside = inside ? F.logical_and(inside, within) : within;
      if (share) weight = weight ? F.mul(weight, share) : share;
      // A position that is no number is outside.
      const row = F.where(within, place, 0).to('i64');
      index = index ? F.add(F.mul(index, size), row) : row;
    });
    const factor = weight ? F.where(inside, weight, 0) : inside.to(x.dtype);
    const positions = index.reshape([batch, 1, count]).expand([batch, channels, count]);
    const part = F.mul(flat.gather(2, positions), factor.reshape([batch, 1, count]));
    total = total ? F.add(total, part) : part;
  }
  return total.reshape([batch, channels, ...grid.shape.slice(1, -1)]);
});

module.exports = {
  pad, interpolate, upsample: interpolate, upsampleNearest, upsampleBilinear, affineGrid, gridSample,
  pixelShuffle: shell('pixel_shuffle', ['x', 'upscaleFactor*'], {}), pixelUnshuffle: shell('pixel_unshuffle', ['x', 'downscaleFactor*'], {}),
  channelShuffle: shell('channel_shuffle', ['x', 'groups*'], {}),
};
