/** Names of types that are parts of those of the operations. */

import type { Account, FaceHit, FaceHits, Key, ListPhotos, Photo, TextHit, TextHits, WatermarkSettings } from "./api";

export type Mode = Key["mode"];
export type Scope = Key["scopes"][number];
export type Role = Account["role"];
export type PhotoState = Photo["state"];
export type PhotoFilter = Pick<ListPhotos, "state" | "camera" | "takenFrom" | "takenUntil">;
export type WatermarkPosition = WatermarkSettings["position"];

/** A hit of either search: that of a face has nothing of a bib. */
export type Hit = FaceHit & Partial<Omit<TextHit, keyof FaceHit>>;
export type Hits = FaceHits | TextHits;
