/** What was seen on a photo: boxes on the picture, and the list beside it. */

import type { Signal } from "@preact/signals";

import type { BoundingBox, PhotoDetail, SeenFace, SeenText } from "../api";
import { formatConfidence, formatList } from "../common/format";
import { t, tCount, tName } from "../text";

/** The boxes, each with its number: that of the bib, or of the face in the list. What they show is in the list in words. */
export function Boxes({ photo, lit }: { photo: PhotoDetail; lit: string | null }) {
  const box = (key: string, kind: string, place: BoundingBox, indexed: boolean) => {
    const shape = { x: place.left, y: place.top, width: place.width, height: place.height };
    return (
      <g key={key}>
        <rect class="box-back" {...shape} />
        <rect class={`box box-${kind} ${indexed ? "" : "box-out"} ${lit === key ? "box-lit" : ""}`} {...shape} />
      </g>
    );
  };
  // Beside the boxes: the drawing is stretched to the shape of the photo, which letters cannot be.
  const number = (key: string, kind: string, { left, top }: BoundingBox, words: string) => (
    <span key={key} class={`box-number box-number-${kind}`} style={{ left: `${left * 100}%`, top: `max(${top * 100}%, 1.5em)` }}>
      {words}
    </span>
  );
  return (
    <div aria-hidden="true">
      <svg viewBox="0 0 1 1" preserveAspectRatio="none">
        {photo.faces.map((face, index) => box(`face ${index}`, "face", face.boundingBox, face.indexed))}
        {photo.texts.map((text, index) => box(`text ${index}`, "text", text.boundingBox, text.indexed))}
      </svg>
      {photo.faces.map((face, index) => number(`face ${index}`, "face", face.boundingBox, String(index + 1)))}
      {photo.texts.map((text, index) => number(`text ${index}`, "text", text.boundingBox, text.text))}
    </div>
  );
}

/** The bibs and the faces. The one that is pointed at is lit on the picture. */
export function SeenList({ photo, lit }: { photo: PhotoDetail; lit: Signal<string | null> }) {
  if (photo.state !== "ready") return null;
  const item = (key: string, title: string, seen: SeenFace, note: string) => (
    <li key={key}>
      <button
        type="button"
        onMouseEnter={() => (lit.value = key)}
        onMouseLeave={() => (lit.value = null)}
        onFocus={() => (lit.value = key)}
        onBlur={() => (lit.value = null)}
      >
        <strong>{title}</strong>
        <span class="numeric">{formatConfidence(seen.confidence)}</span>
        <span class="seen-note">{note}</span>
      </button>
    </li>
  );
  return (
    <>
      <section>
        <h2>{tCount("photo.bibs", photo.texts.length)}</h2>
        <ul class="seen">
          {photo.texts.map((text, index) => item(`text ${index}`, text.text, text, describeText(text)))}
        </ul>
      </section>
      <section>
        <h2>{tCount("photo.faces", photo.faces.length)}</h2>
        <ul class="seen">
          {photo.faces.map((face, index) =>
            item(`face ${index}`, t("photo.face", { number: index + 1 }), face, describeSeen(face)),
          )}
        </ul>
      </section>
    </>
  );
}

function describeSeen(seen: SeenFace): string {
  if (seen.reason) return tName("reason", seen.reason);
  return t(seen.indexed ? "reason.indexed" : "reason.not_indexed");
}

function describeText(text: SeenText): string {
  const notes = [describeSeen(text)];
  if (text.readAs && text.readAs !== text.text) notes.push(t("photo.read_as", { text: text.readAs }));
  if (text.onStartList) notes.push(t("photo.on_start_list"));
  const others = text.alternatives.slice(0, 3).map((other) => other.text);
  if (others.length > 0) notes.push(t("photo.or", { texts: formatList(others) }));
  return notes.join(" · ");
}
