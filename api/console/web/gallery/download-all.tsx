/** All photos of a search as one file. */

import { useSignal } from "@preact/signals";

import type { DownloadTicket } from "../api";
import { fetchFile } from "../common/files";
import { formatBytes } from "../common/format";
import { useAction } from "../common/load";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { notify } from "../common/ui/notice";
import { Failed } from "../common/ui/states";
import { type Photo, type Source, createDownload } from "./calls";
import { t, tCount } from "./text";

/** Files larger than this are begun only when the visitor has read how large they are: phones pay for bytes. */
const LARGE_BYTES = 30_000_000;

/** Photos that fit in one file. */
const MOST_PHOTOS = 2000;

/** A button that fetches them, for searches alone: a whole event is no download for a phone. */
export function DownloadAll({ source, photos, total }: { source: Source; photos: Photo[]; total: number }) {
  const offer = useSignal<DownloadTicket | null>(null);
  const begin = async ({ url, files, bytes }: DownloadTicket) => {
    await fetchFile(url);
    offer.value = null;
    notify(tCount("all.begun", files, { size: formatBytes(bytes) }));
  };
  const ask = useAction(async () => {
    // What is shown is what is fetched, and counts as no other search.
    const isWhole = photos.length === total && total <= MOST_PHOTOS;
    const download = await createDownload(source, isWhole ? photos : null);
    if (download.bytes > LARGE_BYTES) offer.value = download;
    else await begin(download);
  });
  const accept = useAction(async () => {
    if (offer.value) await begin(offer.value);
  });
  if (source.kind === "all" || total < 2) return null;
  return (
    <div class="row">
      <Button busy={ask.isBusy.value} onClick={() => void ask.run()}>
        {tCount("all.download", total)}
      </Button>
      <Failed failure={ask.failure.value} />
      {offer.value && (
        <FormDialog
          title={tCount("all.download", offer.value.files)}
          action={t("photo.download")}
          does={accept}
          onClose={() => (offer.value = null)}
        >
          <p>{t("all.large", { size: formatBytes(offer.value.bytes) })}</p>
        </FormDialog>
      )}
    </div>
  );
}
