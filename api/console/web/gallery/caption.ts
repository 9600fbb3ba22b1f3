/** What is said of a photo. */

import { formatTime, formatTimeOfDay } from "../common/format";
import type { Photo } from "./calls";
import { t } from "./text";

/** Why a photo is shown, when it was taken, and the wave: the most telling first, because little fits on a small picture. */
export function captionWords(photo: Photo, hasDay = photo.why === null): string[] {
  const why = photo.why && t(photo.why === "bib" ? "why.bib" : photo.why === "face" ? "why.face" : "why.both");
  const isUnsure = photo.certainty === "likely" || photo.certainty === "maybe";
  const certainty = isUnsure && t(photo.certainty === "likely" ? "certainty.likely" : "certainty.maybe");
  const time = photo.takenAt && (hasDay ? formatTime(photo.takenAt) : formatTimeOfDay(photo.takenAt));
  const wave = photo.wave && t("photo.wave", { wave: photo.wave });
  return [why, certainty, time, wave].filter((word) => typeof word === "string" && word !== "") as string[];
}
