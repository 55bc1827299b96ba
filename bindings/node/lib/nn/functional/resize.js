'use strict';
// Padding, resizing, sampling at positions, and what moves channels.

const { functions: F } = require('../../ops.js');
const { define, ints, wantOneOf, kindOf } = require('../../arguments.js');
const { shell } = require('./loss.js');
const { ValueError } = require('../../errors.js');

/** (before, after) for the last dimension, then the one before it; modes 'constant', 'reflect', 'replicate', 'circular'. */
const pad = define('pad', ['x', 'padding*'], { mode: 'constant', value: 0 }, (x, padding, { mode, value }) => {
  if (!Array.isArray(padding)) throw new ValueError(`pad: padding must be an array of numbers, got ${kindOf(padding)}`, 'pad');
  return F.pad(x, padding, mode, value);
});

// ---- resizing

const MODES = ['nearest', 'nearest-exact', 'linear', 'bilinear', 'trilinear', 'bicubic', 'area'];
/** Resizes [N, C, L], [N, C, H, W] or [N, C, D, H, W] to {size} or by {scaleFactor}. {antialias} goes with 'bilinear' and 'bicubic'. */
const interpolate = define('interpolate', ['x'], { size: null, scaleFactor: null, mode: 'nearest', alignCorners: null, recomputeScaleFactor: false,
  antialias: false }, (x, { size, scaleFactor, mode, alignCorners, recomputeScaleFactor, antialias }) => {
  const name = 'interpolate';
  const n = Math.max(1, x.ndim - 2);
  wantOneOf(mode, MODES, name, 'mode');
  if (alignCorners !== null && ['nearest', 'nearest-exact', 'area'].includes(mode)) throw new ValueError(`${name}: alignCorners does not go with mode '${mode}'`, name);
  if ((size === null) === (scaleFactor === null)) throw new ValueError(`${name}: needs either size or scaleFactor`, name);
  const factors = Array.isArray(scaleFactor) ? scaleFactor : [scaleFactor];
  if (scaleFactor !== null && ((Array.isArray(scaleFactor) && factors.length !== n) || !factors.every((f) => typeof f === 'number' && f > 0 && Number.isFinite(f)))) {
    throw new ValueError(`${name}: scaleFactor wants one or ${n} positive numbers, got ${Array.isArray(scaleFactor) ? `[${factors.map(String)}]` : kindOf(scaleFactor)}`, name);
  }
  const [first, second = null, third = null] = factors;
  return F.interpolate(x, size === null ? null : ints(size, n, name, 'size'), first, mode, Boolean(alignCorners), recomputeScaleFactor, antialias, second, third);
});
const upsampleNearest = define('upsampleNearest', ['x'], { size: null, scaleFactor: null }, (x, o) => interpolate(x, { ...o, mode: 'nearest' }));
const upsampleBilinear = define('upsampleBilinear', ['x'], { size: null, scaleFactor: null },
  (x, o) => interpolate(x, { ...o, mode: 'bilinear', alignCorners: true }));

// ---- sampling

/**
 * Positions for gridSample(): theta [N, 2, 3] (or [N, 3, 4]) maps a result of `size` [N, C, H, W] ([N, C, D, H, W]) into the
 * input, both from -1 to 1.
 */
const affineGrid = shell('affine_grid', ['theta', 'size*'], { alignCorners: false });
/**
 * x [N, C, H, W] at the positions grid [N, H', W', 2], (x, y) from -1 to 1 (or [N, C, D, H, W] at [N, D', H', W', 3]):
 * [N, C, H', W']. Modes 'bilinear', 'nearest' and, in two dimensions, 'bicubic'; outside are 'zeros', the 'border' or a
 * 'reflection'.
 */
const gridSample = shell('grid_sample', ['x', 'grid'], { mode: 'bilinear', paddingMode: 'zeros', alignCorners: false });

module.exports = {
  pad, interpolate, upsample: interpolate, upsampleNearest, upsampleBilinear, affineGrid, gridSample,
  pixelShuffle: shell('pixel_shuffle', ['x', 'upscaleFactor*'], {}), pixelUnshuffle: shell('pixel_unshuffle', ['x', 'downscaleFactor*'], {}),
  channelShuffle: shell('channel_shuffle', ['x', 'groups*'], {}),
};
