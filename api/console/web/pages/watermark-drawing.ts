/** Draws a watermark over a picture as the service will: the same sizes and places. */

import type { WatermarkSettings } from "../api";

/** Of the picture's shorter side. */
const MARGIN = 0.02;

/** Draws the mark, or nothing, on a canvas that lies over a picture. */
export function drawMark(
  canvas: HTMLCanvasElement,
  picture: HTMLImageElement,
  mark: ImageBitmap | null,
  settings: WatermarkSettings,
): void {
  canvas.width = picture.naturalWidth;
  canvas.height = picture.naturalHeight;
  const context = canvas.getContext("2d");
  if (!context || !mark || canvas.width === 0) return;
  const factor = Math.min((canvas.width * settings.scale) / mark.width, canvas.height / mark.height);
  const width = Math.max(1, Math.round(mark.width * factor));
  const height = Math.max(1, Math.round(mark.height * factor));
  context.globalAlpha = settings.opacity;
  for (const [x, y] of places(canvas, width, height, settings)) context.drawImage(mark, x, y, width, height);
}

function places(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  { position }: WatermarkSettings,
): [number, number][] {
  const freeX = canvas.width - width;
  const freeY = canvas.height - height;
  if (position === "tile") return tiles(canvas, width, height);
  if (position === "center") return [[Math.trunc(freeX / 2), Math.trunc(freeY / 2)]];
  const margin = Math.round(Math.min(canvas.width, canvas.height) * MARGIN);
  const left = Math.min(margin, freeX);
  const top = Math.min(margin, freeY);
  return [[position.endsWith("Left") ? left : freeX - left, position.startsWith("top") ? top : freeY - top]];
}

function tiles(canvas: HTMLCanvasElement, width: number, height: number): [number, number][] {
  const stepX = Math.max(2, width + Math.trunc(width / 2));
  const stepY = Math.max(2, height + Math.trunc(height / 2));
  const found: [number, number][] = [];
  let isOdd = false;
  for (let y = -Math.trunc(height / 4); y < canvas.height; y += stepY) {
    const first = -Math.trunc(width / 4) - (isOdd ? Math.trunc(stepX / 2) : 0);
    for (let x = first; x < canvas.width; x += stepX) found.push([x, y]);
    isOdd = !isOdd;
  }
  return found;
}
