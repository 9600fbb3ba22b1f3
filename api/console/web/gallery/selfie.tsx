/** Search by selfie: consent first, then camera or file; and to be forgotten, or gone from the event. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef } from "preact/hooks";

import { formatDuration } from "../common/format";
import { useAction } from "../common/load";
import { drawSelfie } from "../common/selfie";
import { Button } from "../common/ui/button";
import { Dialog } from "../common/ui/dialog";
import { notify } from "../common/ui/notice";
import { Failed } from "../common/ui/states";
import { language } from "../common/words";
import { type Gallery, type Source, call, sendSelfie } from "./calls";
import { Leave } from "./leave";
import { t } from "./text";

interface SelfieProps {
  gallery: Gallery;
  source: Source | null;
  /** Whether the dialog is open. */
  isAsking: Signal<boolean>;
  onFound: (imageId: string, until: string) => void;
  onForgotten: () => void;
}

/** The part of the page about selfies. */
export function Selfie({ gallery, source, isAsking, onFound, onForgotten }: SelfieProps) {
  const forget = useAction(async (imageId: string) => {
    await call("gallery/search/face/forget", { imageId });
    notify(t("selfie.forgotten"));
    onForgotten();
  });
  if (source?.kind === "selfie") {
    return (
      <div class="finder">
        <p class="finder-title">{t("selfie.used")}</p>
        <div class="row">
          <Button busy={forget.isBusy.value} onClick={() => void forget.run(source.imageId)}>{t("selfie.forget")}</Button>
          <Leave imageId={source.imageId} />
        </div>
        <Failed failure={forget.failure.value} />
      </div>
    );
  }
  return (
    <div class="finder">
      <p class="finder-title">{t("selfie.title")}</p>
      <div>
        <Button onClick={() => (isAsking.value = true)}>{t("selfie.begin")}</Button>
      </div>
      {isAsking.value && (
        <Dialog title={t("selfie.title")} onClose={() => (isAsking.value = false)}>
          <Consent
            gallery={gallery}
            onFound={(imageId, until) => {
              isAsking.value = false;
              onFound(imageId, until);
            }}
          />
        </Dialog>
      )}
    </div>
  );
}

function Consent({ gallery, onFound }: { gallery: Gallery; onFound: (imageId: string, until: string) => void }) {
  const agreed = useSignal(false);
  const isCameraOn = useSignal(false);
  const isCameraRefused = useSignal(false);
  const id = useId();
  const abort = useMemo(() => new AbortController(), []);
  // Who closes the dialog takes the selfie back.
  useEffect(() => () => abort.abort(), []);
  const send = useAction(async (image: Blob) => {
    const agreement = { version: gallery.consentVersion, language: language.value, signal: abort.signal };
    const ticket = await sendSelfie(image, agreement);
    onFound(ticket.imageId, ticket.imageExpiresAt);
  });
  const openCamera = () => {
    isCameraRefused.value = false;
    isCameraOn.value = true;
  };
  const choose = (event: { currentTarget: HTMLInputElement }) => {
    const file = event.currentTarget.files?.[0];
    // Else the browser would not tell that the same file is chosen again.
    event.currentTarget.value = "";
    if (file) void send.run(file);
  };
  const words = t("consent.text", { album: gallery.title, time: formatDuration(gallery.selfieSeconds, "long") });
  return (
    <div class="stack">
      <div class="consent">
        <input id={id} type="checkbox" checked={agreed.value} onChange={(event) => (agreed.value = event.currentTarget.checked)} />
        <label for={id}>{words}</label>
      </div>
      {gallery.privacyUrl && <a href={gallery.privacyUrl} rel="noreferrer" target="_blank">{t("foot.privacy")}</a>}
      {isCameraOn.value && agreed.value ? (
        <Camera
          isBusy={send.isBusy.value}
          onTaken={(image) => void send.run(image)}
          onOff={() => (isCameraOn.value = false)}
          onRefused={() => {
            isCameraRefused.value = true;
            isCameraOn.value = false;
          }}
        />
      ) : (
        <div class="row">
          <Button kind="main" disabled={!agreed.value} onClick={openCamera}>{t("selfie.camera")}</Button>
          <label class="file-button" aria-disabled={!agreed.value}>
            <input type="file" accept="image/jpeg,image/png,image/webp" disabled={!agreed.value || send.isBusy.value} onChange={choose} />
            <span class="button button-plain">{t("selfie.file")}</span>
          </label>
        </div>
      )}
      {isCameraRefused.value && <p class="failed" role="alert">{t("selfie.noCamera")}</p>}
      {send.isBusy.value && <p role="status">{t("selfie.searching")}</p>}
      <Failed failure={send.failure.value} />
    </div>
  );
}

interface CameraProps {
  isBusy: boolean;
  onTaken: (image: Blob) => void;
  onOff: () => void;
  /** There is none, or the visitor does not let it be used. */
  onRefused: () => void;
}

/** The picture of the front camera, and a button that takes it. */
function Camera({ isBusy, onTaken, onOff, onRefused }: CameraProps) {
  const video = useRef<HTMLVideoElement>(null);
  const isReady = useSignal(false);
  useEffect(() => {
    let stream: MediaStream | undefined;
    let isGone = false;
    const wanted = { video: { facingMode: "user", width: { ideal: 1280 } }, audio: false };
    const begin = async () => {
      stream = await navigator.mediaDevices.getUserMedia(wanted);
      if (isGone) return stop();
      if (video.current) video.current.srcObject = stream;
    };
    const stop = () => stream?.getTracks().forEach((track) => track.stop());
    begin().catch(() => !isGone && onRefused());
    return () => {
      isGone = true;
      stop();
    };
  }, []);
  const take = () => {
    const source = video.current;
    if (!source) return;
    void drawSelfie(source, source.videoWidth, source.videoHeight).then((image) => image && onTaken(image));
  };
  return (
    <div class="stack">
      <video ref={video} class="camera" autoPlay playsInline muted onLoadedData={() => (isReady.value = true)} aria-label={t("selfie.picture")} />
      <div class="row">
        <Button kind="main" busy={isBusy} disabled={!isReady.value} onClick={take}>{t("selfie.take")}</Button>
        <Button onClick={onOff}>{t("selfie.cancel")}</Button>
      </div>
    </div>
  );
}
