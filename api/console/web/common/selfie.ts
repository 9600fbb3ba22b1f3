/** Makes a selfie small before it is sent: over a mobile network ten megabytes take a minute, and larger ones are refused. */

/** Long side of what is sent, pixels. The service uses 1280 of them at most. */
const LONG_SIDE = 1600;
/** A file of at most so many bytes is sent as it is, unless it has more pixels. */
const MAX_BYTES = 2_000_000;
const JPEG_QUALITY = 0.92;

/** Draws a picture as a JPEG with the long side at most; null where the browser cannot. */
export function drawSelfie(source: CanvasImageSource, width: number, height: number): Promise<Blob | null> {
  const scale = Math.min(1, LONG_SIDE / Math.max(width, height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  const context = canvas.getContext("2d");
  if (!context) return Promise.resolve(null);
  context.imageSmoothingQuality = "high";
  // Behind what is transparent, as the service does: a JPEG would have black there.
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", JPEG_QUALITY));
}

/** Returns a chosen selfie as it is sent: smaller, or the file itself where it is small, or the browser cannot decode or draw it. */
export async function shrinkSelfie(file: Blob): Promise<Blob> {
  let picture: ImageBitmap | undefined;
  try {
    // Upright: what is drawn has no EXIF data that would say how to turn it.
    picture = await createImageBitmap(file, { imageOrientation: "from-image" });
    const isSmall = Math.max(picture.width, picture.height) <= LONG_SIDE && file.size <= MAX_BYTES;
    const drawn = isSmall ? null : await drawSelfie(picture, picture.width, picture.height);
    return drawn && drawn.size < file.size ? drawn : file;
  } catch {
    return file;
  } finally {
    picture?.close();
  }
}
