/** Photos of an album as one file. */

import { useSignal } from "@preact/signals";

import type { Operations } from "../api";
import { call } from "../calls";
import { fetchFile } from "../common/files";
import { formatBytes } from "../common/format";
import { ApiFailure } from "../common/http";
import { useAction } from "../common/load";
import { Button, type ButtonKind } from "../common/ui/button";
import { SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Failed } from "../common/ui/states";
import { t, tCount } from "../text";

/** Photos that fit in one file. */
export const MOST_IN_FILE = 2000;

type Size = NonNullable<Operations["photos/download/create"][0]["size"]>;
const SIZES: readonly Size[] = ["preview", "marked", "original"];

/** A choice of size, and a button that fetches the photos that it is given when it is pressed. */
export function ZipDownload(props: {
  albumId: string;
  action: string;
  kind?: ButtonKind;
  disabled?: boolean;
  photoIds: () => Promise<string[]>;
}) {
  const { albumId, action, kind = "plain", disabled, photoIds } = props;
  const size = useSignal<Size>("preview");
  const download = useAction(async () => {
    const asked = { albumId, size: size.value, photoIds: await photoIds() };
    const { url, files, bytes } = await call("photos/download/create", asked).catch(sayWhatIsMissing);
    await fetchFile(url);
    notify(tCount("zip.begun", files, { size: formatBytes(bytes) }));
  });
  return (
    <div class="zip">
      <SelectField
        label={t("zip.size")}
        value={size.value}
        options={SIZES.map((each) => [each, t(`zip.${each}`)] as const)}
        onChange={(value) => (size.value = value as Size)}
      />
      <Button kind={kind} disabled={disabled} busy={download.isBusy.value} onClick={() => void download.run()}>
        {action}
      </Button>
      <Failed failure={download.failure.value} />
    </div>
  );
}

/** The photos are there, so what is missing is a file of the size, such as marked pictures without a watermark. */
function sayWhatIsMissing(failure: ApiFailure): never {
  throw failure.status === 404 ? new ApiFailure(404, "NO_SUCH_FILES", failure.message) : failure;
}
