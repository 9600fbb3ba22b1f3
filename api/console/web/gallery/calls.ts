/** What visitors call, below the address of their gallery. */

import type {
  DownloadTicket,
  ProbeTicket,
  PublicPhoto as Photo,
  PublicPhotos as Photos,
  VisitorOperations,
} from "../api";
import { ApiFailure, createClient, fetchAddress, putBytes } from "../common/http";
import { shrinkSelfie } from "../common/selfie";

export type { PublicErasure as Erasure, PublicGallery as Gallery, PublicPhoto as Photo } from "../api";

// The address is `/g/{link}`, and what follows it is ours.
const base = location.pathname.split("/").slice(0, 3).join("/");

/** Calls an operation of the gallery. */
export const { call } = createClient<VisitorOperations>({ base: `${base}/api` });

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
      return call("gallery/search/text", { text: source.text, ...more }, signal);
    case "selfie":
      return call("gallery/search/face/list", { imageId: source.imageId, ...more }, signal);
    case "all":
      return call("gallery/photos/list", more, signal);
  }
}

/** Asks the organizer to remove whoever wears a bib. The cursor of its search shows that it was searched. */
export async function askForRemoval(text: string, cursor: string | null): Promise<void> {
  await call("gallery/erase/request", cursor === null ? { text } : { text, cursor });
}

/** Asks for photos as one file: those that are given, or all that a search finds. */
export function createDownload(source: Source, photos: Photo[] | null): Promise<DownloadTicket> {
  if (photos) return call("gallery/download/create", { photoIds: photos.map((photo) => photo.id) });
  if (source.kind === "bib") return call("gallery/download/create", { text: source.text });
  if (source.kind === "selfie") return call("gallery/download/create", { imageId: source.imageId });
  return Promise.reject(new Error("a whole event is not fetched as one file"));
}

/** What a visitor agreed to, and until when a selfie is sent. */
export interface Agreement {
  version: number;
  language: string;
  signal: AbortSignal;
}

/** Uploads a selfie, made smaller, after its owner agreed; returns its ticket. One that did not get there is forgotten. */
export async function sendSelfie(selfie: Blob, { version, language, signal }: Agreement): Promise<ProbeTicket> {
  const image = await shrinkSelfie(selfie);
  signal.throwIfAborted();
  // Not taken back when aborted: who does not know the ticket could not forget it.
  const ticket = await call("gallery/search/face/signed", { consent: true, consentVersion: version, language });
  try {
    const isTaken = await putBytes(ticket.uploadUrl, image, image.type || "image/jpeg", signal);
    signal.throwIfAborted();
    if (!isTaken) throw new ApiFailure(413, "SELFIE_TOO_LARGE", "the selfie was refused");
    return ticket;
  } catch (error) {
    forgetSelfie(ticket.imageId);
    throw error;
  }
}

/** Forgets a selfie that nobody needs any more. Where that fails it is deleted at the end of its time. */
export function forgetSelfie(imageId: string): void {
  call("gallery/search/face/forget", { imageId }).catch(() => undefined);
}

/** Saves a photo as a file. Fetched first, because browsers name no file of another host. */
export async function savePhoto(photo: Photo): Promise<void> {
  const { url, filename } = await call("gallery/download", { photoId: photo.id });
  const response = await fetchAddress(url);
  if (!response.ok) throw new ApiFailure(response.status, response.status < 500 ? "NOT_FOUND" : "UNKNOWN", "not fetched");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = filename;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
