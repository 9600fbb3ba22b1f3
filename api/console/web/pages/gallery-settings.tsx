/** The public gallery of an album: whether it is open, and what runners may do in it. */

import { useSignal } from "@preact/signals";

import type { Gallery } from "../api";
import { call } from "../calls";
import { useEdits } from "../common/edits";
import { endOfLocalDay, formatNumber, formatTime, localDay } from "../common/format";
import { useAction, useLoad } from "../common/load";
import { Button, CopyText } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { AreaField, CheckField, Field, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Failed, Loaded } from "../common/ui/states";
import { t } from "../text";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { Reports } from "./reports";
import { WatermarkPanel } from "./watermark";

/** For how long a gallery that has ended is opened again where no other end is chosen, as the service opens a new one. */
const DAYS_AGAIN = 90;

/** The end of a gallery that is opened now and gets no other. */
function usualEnd(): string {
  return new Date(Date.now() + DAYS_AGAIN * 86_400_000).toISOString();
}

/** Whether its end is over: it is closed then, though nobody has closed it. */
function hasEnded({ expiresAt }: Pick<Gallery, "expiresAt">): boolean {
  return expiresAt !== null && new Date(expiresAt).getTime() < Date.now();
}

/** The link as a picture, for posters and bibs. */
function QrCode({ url }: { url: string }) {
  // From this host, whatever name it is reached by: pages load pictures of no other.
  const path = new URL(url).pathname;
  return (
    <div class="qr">
      <img src={path} alt={t("gallery.qr")} width={144} height={144} />
      <div class="stack stack-tight">
        <p class="quiet">{t("gallery.qr_hint")}</p>
        <p>
          <a class="button button-plain" href={path} download="gallery.svg">
            {t("gallery.qr_save")}
          </a>
        </p>
      </div>
    </div>
  );
}

/** The page of the gallery's settings. */
export function GalleryPage({ album }: AlbumProps) {
  const albumId = album.id;
  const gallery = useLoad((signal) => call("albums/gallery/get", { albumId }, signal), [albumId]);
  const isReplacing = useSignal(false);
  const replace = useAction(async () => {
    gallery.value.value = await call("albums/gallery/update", { albumId, newLink: true });
    isReplacing.value = false;
    notify(t("gallery.replaced"));
  });
  return (
    <AlbumFrame album={album} section="gallery">
      <p class="quiet">{t("gallery.hint")}</p>
      <Loaded load={gallery} lines={4} height="4rem">
        {(shown) => (
          <>
            {shown.url && (
              <section class="panel panel-split" aria-labelledby="link-title">
                <h2 id="link-title">{t("gallery.link")}</h2>
                <CopyText text={shown.url} label={t("gallery.link")} />
                {shown.qrUrl && <QrCode url={shown.qrUrl} />}
                <div class="row row-apart">
                  <p class="quiet small numeric">
                    {t("gallery.counts", { opened: formatNumber(shown.opened), searches: formatNumber(shown.searches) })}
                  </p>
                  <div class="row">
                    {shown.enabled && !hasEnded(shown) && (
                      <a class="button button-plain" href={shown.url} target="_blank" rel="noopener">
                        {t("gallery.open")}
                      </a>
                    )}
                    <Button onClick={() => (isReplacing.value = true)}>{t("gallery.replace")}</Button>
                  </div>
                </div>
              </section>
            )}
            <GalleryForm gallery={shown} onSaved={(saved) => (gallery.value.value = saved)} />
            <WatermarkPanel albumId={albumId} />
            {shown.url && <Reports albumId={albumId} />}
          </>
        )}
      </Loaded>
      {isReplacing.value && (
        <FormDialog
          title={t("gallery.replace")}
          action={t("gallery.replace")}
          kind="danger"
          does={replace}
          onClose={() => (isReplacing.value = false)}
        >
          <p>{t("gallery.replace_text")}</p>
        </FormDialog>
      )}
    </AlbumFrame>
  );
}

/** The settings that the form changes. A gallery that has ended is shown as what it is for runners: not open. */
function pickSettings(gallery: Gallery) {
  const { bibSearch, selfieSearch, browse, downloads, watermark, removal, expiresAt, searchesPerVisitor } = gallery;
  const { contact, privacyUrl, intro } = gallery;
  const enabled = gallery.enabled && !hasEnded(gallery);
  const plain = { enabled, bibSearch, selfieSearch, browse, downloads, watermark, removal, expiresAt, searchesPerVisitor };
  return { ...plain, contact, privacyUrl, intro };
}

type Settings = ReturnType<typeof pickSettings>;

/** What is sent of what was changed in the form. */
function completeChanges(changed: Partial<Settings>, isShownOpen: boolean, { enabled }: Gallery): Partial<Settings> {
  if (changed.expiresAt === undefined) return changed;
  // An end that was emptied is the usual one, as the field says: null would say that the gallery has none.
  const changes = { ...changed, expiresAt: changed.expiresAt ?? usualEnd() };
  // Another end alone would open one that has ended, and is shown as not open.
  return isShownOpen === enabled ? changes : { ...changes, enabled: isShownOpen };
}

function GalleryForm({ gallery, onSaved }: { gallery: Gallery; onSaved: (gallery: Gallery) => void }) {
  const { shown, set, save: saveEdits } = useEdits<Settings>(pickSettings(gallery));
  const { enabled, bibSearch, selfieSearch, browse } = shown;
  const save = useAction(() =>
    saveEdits(async (changed) => {
      const changes = completeChanges(changed, enabled, gallery);
      onSaved(await call("albums/gallery/update", { albumId: gallery.albumId, ...changes }));
      notify(t("settings.saved"));
    }),
  );
  const open = (isOpen: boolean) => {
    const isOver = isOpen && hasEnded(shown);
    set(isOver ? { enabled: isOpen, expiresAt: usualEnd() } : { enabled: isOpen });
  };
  const needsContact = selfieSearch && !(shown.contact && shown.privacyUrl);
  return (
    <form
      class="panel panel-split"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save.run();
      }}
    >
      <h2>{t("gallery.settings")}</h2>
      <div class="form">
        {gallery.expiresAt && hasEnded(gallery) && (
          <p class="away">{t("gallery.ended", { time: formatTime(gallery.expiresAt) })}</p>
        )}
        <CheckField label={t("gallery.enabled")} checked={enabled} onChange={open} />
        <CheckField label={t("gallery.bib_search")} checked={bibSearch} onChange={(checked) => set({ bibSearch: checked })} />
        <CheckField
          label={t("gallery.selfie_search")}
          hint={t("gallery.selfie_hint")}
          checked={selfieSearch}
          error={needsContact ? t("gallery.needs_contact") : undefined}
          onChange={(checked) => set({ selfieSearch: checked })}
        />
        <CheckField
          label={t("gallery.browse")}
          hint={t("gallery.browse_hint")}
          checked={browse}
          onChange={(checked) => set({ browse: checked })}
        />
        <GalleryTexts form={shown} set={set} />
        <Failed failure={save.failure.value} />
        <div class="row">
          <Button kind="main" type="submit" busy={save.isBusy.value}>
            {t("ui.save")}
          </Button>
        </div>
      </div>
    </form>
  );
}

type FormProps = { form: Settings; set: (change: Partial<Settings>) => void };

function GalleryTexts({ form, set }: FormProps) {
  const day = form.expiresAt ? localDay(form.expiresAt) : "";
  return (
    <>
      <SelectField
        label={t("gallery.downloads")}
        value={form.downloads}
        options={[
          ["none", t("gallery.downloads_none")],
          ["preview", t("gallery.downloads_preview")],
          ["original", t("gallery.downloads_original")],
        ]}
        onChange={(value) => set({ downloads: value as Gallery["downloads"] })}
      />
      <CheckField
        label={t("gallery.watermark")}
        hint={t("gallery.watermark_hint")}
        checked={form.watermark}
        onChange={(checked) => set({ watermark: checked })}
      />
      <SelectField
        label={t("gallery.removal")}
        hint={t("gallery.removal_hint")}
        value={form.removal}
        options={[
          ["request", t("gallery.removal_request")],
          ["immediate", t("gallery.removal_immediate")],
        ]}
        onChange={(value) => set({ removal: value as Gallery["removal"] })}
      />
      <Field
        label={t("gallery.expires")}
        hint={t("gallery.expires_hint")}
        error={form.enabled && hasEnded(form) ? t("gallery.expires_past") : undefined}
        type="date"
        value={day}
        onInput={(value) => set({ expiresAt: value ? endOfLocalDay(value) : null })}
      />
      <Field
        label={t("gallery.searches")}
        type="number"
        inputMode="numeric"
        min={1}
        value={String(form.searchesPerVisitor)}
        onInput={(value) => set({ searchesPerVisitor: Number(value) })}
      />
      <Field
        label={t("gallery.contact")}
        hint={t("gallery.contact_hint")}
        value={form.contact ?? ""}
        onInput={(value) => set({ contact: value || null })}
      />
      <Field
        label={t("gallery.privacy")}
        type="url"
        placeholder="https://"
        value={form.privacyUrl ?? ""}
        onInput={(value) => set({ privacyUrl: value || null })}
      />
      <AreaField
        label={t("gallery.intro")}
        hint={t("gallery.intro_hint")}
        maxLength={2000}
        value={form.intro ?? ""}
        onInput={(value) => set({ intro: value || null })}
      />
    </>
  );
}
