/** To be gone from the event: by the selfie's face, or by a bib, which the organizer is asked for. */

import { useSignal } from "@preact/signals";

import { formatNumber } from "../common/format";
import { useAction } from "../common/load";
import { Button } from "../common/ui/button";
import { Dialog, FormDialog } from "../common/ui/dialog";
import { Failed } from "../common/ui/states";
import { type Erasure, askForRemoval, call } from "./calls";
import { t } from "./text";

/** Asks the organizer to remove whoever wears a bib. Nothing is deleted by it: anybody knows a bib. */
export function LeaveByBib({ text, cursor }: { text: string; cursor: string | null }) {
  const step = useSignal<"none" | "asking" | "asked">("none");
  const close = () => (step.value = "none");
  const ask = useAction(async () => {
    await askForRemoval(text, cursor);
    step.value = "asked";
  });
  return (
    <>
      <Button onClick={() => (step.value = "asking")}>{t("leave.title")}</Button>
      {step.value === "asking" && (
        <FormDialog title={t("leave.title")} action={t("leave.send")} does={ask} onClose={close}>
          <p>{t("leave.bib", { bib: text })}</p>
        </FormDialog>
      )}
      {step.value === "asked" && (
        <Dialog title={t("leave.title")} onClose={close}>
          <p role="status">{t("leave.bib_asked", { bib: text })}</p>
        </Dialog>
      )}
    </>
  );
}

/** Has the faces of who is on the selfie erased, or asks the organizer to, after saying how many. */
export function Leave({ imageId }: { imageId: string }) {
  const preview = useSignal<Erasure | undefined>(undefined);
  const done = useSignal<Erasure | undefined>(undefined);
  const ask = useAction(async () => {
    preview.value = await call("gallery/erase/faces", { imageId });
  });
  const leave = useAction(async () => {
    done.value = await call("gallery/erase/faces", { imageId, confirm: preview.value?.confirm ?? undefined });
  });
  const close = () => {
    preview.value = undefined;
    done.value = undefined;
  };
  return (
    <>
      <Button kind="danger" busy={ask.isBusy.value} onClick={() => void ask.run()}>{t("leave.title")}</Button>
      <Failed failure={ask.failure.value} />
      {preview.value && (
        <Dialog title={t("leave.title")} onClose={close}>
          {done.value ? (
            <div class="stack" role="status">
              <p>{t(done.value.isRequest ? "leave.asked" : "leave.done", { count: formatNumber(done.value.faces) })}</p>
              {done.value.receiptId && <p class="small">{t("leave.receipt")} <code>{done.value.receiptId}</code></p>}
            </div>
          ) : (
            <div class="stack">
              <p>{t(preview.value.isRequest ? "leave.ask" : "leave.text", { count: formatNumber(preview.value.faces) })}</p>
              <div class="row">
                <Button kind={preview.value.isRequest ? "main" : "danger"} busy={leave.isBusy.value} onClick={() => void leave.run()}>
                  {t(preview.value.isRequest ? "leave.send" : "leave.confirm")}
                </Button>
                <Button onClick={close}>{t("selfie.cancel")}</Button>
              </div>
              <Failed failure={leave.failure.value} />
            </div>
          )}
        </Dialog>
      )}
    </>
  );
}
