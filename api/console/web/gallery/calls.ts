/** What visitors call, below the address of their gallery. */

import { createClient } from "../common/http";

/** A gallery as visitors see it. */
export interface Gallery {
  title: string;
  intro: string | null;
  bibSearch: boolean;
  selfieSearch: boolean;
  browse: boolean;
  downloads: "none" | "preview" | "original";
  expiresAt: string | null;
  contact: string | null;
  privacyUrl: string | null;
  consentVersion: number;
  /** How long a selfie is kept at most, seconds. */
  selfieSeconds: number;
  photos: number;
}

/** A photo that was found. */
export interface Photo {
  id: string;
  url: string;
  thumbnailUrl: string;
  width: number;
  height: number;
  takenAt: string | null;
  why: "bib" | "face" | "face and bib" | null;
  certainty: "sure" | "likely" | "maybe" | null;
  wave: string | null;
}

/** A page of photos. */
export interface Photos {
  photos: Photo[];
  nextCursor: string | null;
  total: number;
}

/** Where a selfie is uploaded. */
export interface Ticket {
  uploadUrl: string;
  imageId: string;
  imageExpiresAt: string;
}

/** What erasing the own face does, or did. */
export interface Erasure {
  faces: number;
  confirm: string | null;
  receiptId: string | null;
  /** The organizer decides. */
  isRequest: boolean;
}

// The address is `/g/{link}`, and what follows it is ours.
const base = location.pathname.split("/").slice(0, 3).join("/");

/** Calls the gallery. */
export const { call } = createClient({ base: `${base}/api/gallery` });

/** What is shown, and how to load more of it. */
export type Source =
  | { kind: "bib"; text: string }
  | { kind: "selfie"; imageId: string; until: string }
  | { kind: "all" };

/** Loads a page of a source. */
export function loadPhotos(source: Source, cursor: string | null, signal?: AbortSignal): Promise<Photos> {
  const more = cursor === null ? {} : { cursor };
  switch (source.kind) {
    case "bib":
      return call("search/text", { text: source.text, ...more }, signal);
    case "selfie":
      return call("search/face/list", { imageId: source.imageId, ...more }, signal);
    case "all":
      return call("photos/list", more, signal);
  }
}

/** Where photos can be fetched as one file. */
export interface Download {
  url: string;
  files: number;
  bytes: number;
}

/** Asks for photos as one file: those that are given, or all that a search finds. */
export function createDownload(source: Source, photos: Photo[] | null): Promise<Download> {
  if (photos) return call("download/create", { photoIds: photos.map((photo) => photo.id) });
  if (source.kind === "bib") return call("download/create", { text: source.text });
  if (source.kind === "selfie") return call("download/create", { imageId: source.imageId });
  return Promise.reject(new Error("a whole event is not fetched as one file"));
}

/** Uploads a selfie after its owner agreed; returns its ticket. */
export async function sendSelfie(image: Blob, version: number, language: string): Promise<Ticket> {
  const ticket = await call<Ticket>("search/face/signed", { consent: true, consentVersion: version, language });
  const sent = await fetch(ticket.uploadUrl, { method: "PUT", headers: { "content-type": image.type || "image/jpeg" }, body: image });
  if (!sent.ok) throw new Error(`the selfie was not accepted: ${sent.status}`);
  return ticket;
}

/** Saves a photo as a file. Fetched first, because browsers name no file of another host. */
export async function savePhoto(photo: Photo): Promise<void> {
  const { url, filename } = await call<{ url: string; filename: string }>("download", { photoId: photo.id });
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the photo could not be fetched: ${response.status}`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = filename;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
