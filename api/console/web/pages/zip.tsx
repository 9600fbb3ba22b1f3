/** Photos of an album as one file. */

import { useSignal } from "@preact/signals";

import type { Operations } from "../api";
import { call } from "../calls";
import { formatBytes } from "../common/format";
import { useAction } from "../common/load";
import { Button } from "../common/ui/button";
import { SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Failed } from "../common/ui/states";
import { t, tCount } from "../text";

/** Which photos. */
export type Selection = { bib: string } | { imageId: string };

type Size = NonNullable<Operations["photos/download/create"][0]["size"]>;
const SIZES: readonly Size[] = ["preview", "marked", "original"];

/** A button that fetches what a search found, with a choice of size. */
export function DownloadHits({ albumId, selection }: { albumId: string; selection: Selection }) {
  const size = useSignal<Size>("preview");
  const fetchAll = useAction(async () => {
    const asked = { albumId, size: size.value, ...selection };
    const { url, files, bytes } = await call("photos/download/create", asked);
    notify(tCount("zip.begun", files, { size: formatBytes(bytes) }));
    // The answer is a file: the page stays.
    location.assign(url);
  });
  return (
    <div class="row row-end">
      <SelectField
        label={t("zip.size")}
        value={size.value}
        options={SIZES.map((each) => [each, t(`zip.${each}`)] as const)}
        onChange={(value) => (size.value = value as Size)}
      />
      <Button busy={fetchAll.isBusy.value} onClick={() => void fetchAll.run()}>
        {t("zip.action")}
      </Button>
      <Failed failure={fetchAll.failure.value} />
    </div>
  );
}
