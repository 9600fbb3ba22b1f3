/** All photos of a search as one file. */

import { formatBytes } from "../common/format";
import { useAction } from "../common/load";
import { Button } from "../common/ui/button";
import { notify } from "../common/ui/notice";
import { Failed } from "../common/ui/states";
import { type Source, createDownload } from "./calls";
import { t, tCount } from "./text";

/** A button that fetches them, for searches alone: a whole event is no download for a phone. */
export function DownloadAll({ source, total }: { source: Source; total: number }) {
  const fetchAll = useAction(async () => {
    const { url, files, bytes } = await createDownload(source);
    notify(tCount("all.begun", files, { size: formatBytes(bytes) }));
    // The answer is a file: the page stays.
    location.assign(url);
  });
  if (source.kind === "all" || total < 2) return null;
  return (
    <div class="row">
      <Button busy={fetchAll.isBusy.value} onClick={() => void fetchAll.run()}>
        {t("all.download")}
      </Button>
      <Failed failure={fetchAll.failure.value} />
    </div>
  );
}
