/** Which photos of an album are shown: by state, camera and time. The address holds it. */

import { call } from "../calls";
import { formatNumber } from "../common/format";
import { useLoad } from "../common/load";
import { navigate, place, setQuery } from "../common/router";
import { Button } from "../common/ui/button";
import { Fold } from "../common/ui/fold";
import { Field, SelectField } from "../common/ui/field";
import { t } from "../text";
import type { PhotoFilter, PhotoState } from "../types";

const STATES: readonly PhotoState[] = ["ready", "processing", "queued", "failed", "awaiting_upload"];

/** The filter that the address names. */
export function filterOfPlace(): PhotoFilter {
  const { query } = place.value;
  const filter: PhotoFilter = {};
  const state = STATES.find((known) => known === query.get("state"));
  const camera = query.get("camera");
  const from = toInstant(query.get("from"));
  const until = toInstant(query.get("until"));
  if (state) filter.state = state;
  if (camera) filter.camera = camera;
  if (from) filter.takenFrom = from;
  if (until) filter.takenUntil = until;
  return filter;
}

/** A time of this place, as the address has it, in UTC. */
function toInstant(local: string | null): string | null {
  if (!local) return null;
  const time = new Date(local);
  return Number.isNaN(time.getTime()) ? null : time.toISOString();
}

/** The fields of the filter. */
export function PhotoFilters({ albumId, filter }: { albumId: string; filter: PhotoFilter }) {
  const cameras = useLoad((signal) => call("albums/cameras/list", { albumId }, signal), [albumId]);
  const named = (cameras.value.value?.cameras ?? []).filter((each) => each.camera !== null);
  const isKnown = named.some(({ camera }) => camera === filter.camera);
  const { query } = place.value;
  const count = Object.keys(filter).length;
  return (
    <Fold label={count > 0 ? t("photos.filtered", { count }) : t("photos.filter")}>
      <div class="filters">
        <SelectField
          label={t("photos.show")}
          value={filter.state ?? ""}
          options={[["", t("photos.all")], ...STATES.map((each) => [each, t(`state.${each}`)] as const)]}
          onChange={(value) => setQuery("state", value)}
        />
        {(named.length > 0 || filter.camera) && (
          <SelectField
            label={t("photos.camera")}
            value={filter.camera ?? ""}
            options={[
              ["", t("photos.any_camera")],
              // From an address that was kept, or before the list is there.
              ...(filter.camera && !isKnown ? [[filter.camera, filter.camera] as const] : []),
              ...named.map(({ camera, photos }) => [camera ?? "", `${camera} (${formatNumber(photos)})`] as const),
            ]}
            onChange={(value) => setQuery("camera", value)}
          />
        )}
        <Field
          label={t("photos.from")}
          type="datetime-local"
          value={query.get("from") ?? ""}
          onInput={(value) => setQuery("from", value)}
        />
        <Field
          label={t("photos.until")}
          type="datetime-local"
          value={query.get("until") ?? ""}
          onInput={(value) => setQuery("until", value)}
        />
        {count > 0 && (
          <Button kind="quiet" onClick={() => navigate(place.value.path, true)}>
            {t("photos.no_filter")}
          </Button>
        )}
      </div>
    </Fold>
  );
}
