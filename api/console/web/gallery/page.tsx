/** A gallery: bib first, selfie second, then the photos. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { formatTime } from "../common/format";
import { useLoad } from "../common/load";
import { Button } from "../common/ui/button";
import { Notices } from "../common/ui/notice";
import { ErrorState, Loading } from "../common/ui/states";
import { isLanguage, language, languages, switchLanguage } from "../common/words";
import { type Gallery, type Source, call, forgetSelfie } from "./calls";
import { Results } from "./results";
import { Selfie } from "./selfie";
import { t, tCount } from "./text";

/** The page. */
export function GalleryPage() {
  const load = useLoad((signal) => call("gallery/get", {}, signal), []);
  const gallery = load.value.value;
  const failure = load.failure.value;
  useEffect(() => {
    if (gallery) document.title = gallery.title;
  }, [gallery]);
  if (failure?.status === 404) return <Closed />;
  return (
    <>
      <main class="gallery">
        {gallery ? <Open gallery={gallery} /> : failure ? <ErrorState failure={failure} onRetry={load.reload} /> : <Loading lines={6} height="2.5rem" />}
      </main>
      <Notices />
      <Footer gallery={gallery} />
    </>
  );
}

/** Says that there is nothing, or no longer; not which of the two. */
function Closed() {
  return (
    <>
      <main class="alone">
        <h1>{t("closed.title")}</h1>
        <p class="quiet">{t("closed.text")}</p>
      </main>
      <Footer gallery={undefined} />
    </>
  );
}

function Open({ gallery }: { gallery: Gallery }) {
  const asked = new URLSearchParams(location.search).get("bib");
  const first: Source | null = gallery.browse ? { kind: "all" } : null;
  const source = useSignal<Source | null>(asked && gallery.bibSearch ? { kind: "bib", text: asked } : first);
  // Counted, because the same search may find more when it is made again.
  const round = useSignal(0);
  const isAskingSelfie = useSignal(false);
  const show = (next: Source | null) => {
    source.value = next;
    round.value += 1;
    const query = next?.kind === "bib" ? `?bib=${encodeURIComponent(next.text)}` : "";
    history.replaceState(null, "", location.pathname + query);
  };
  return (
    <>
      <header class="gallery-head">
        <h1>{gallery.title}</h1>
        <p class="quiet">{tCount("photos", gallery.photos)}</p>
        {gallery.intro && <p class="intro">{gallery.intro}</p>}
      </header>
      <div class="finders">
        {gallery.bibSearch && <BibForm source={source.value} onSearch={(text) => show(text ? { kind: "bib", text } : first)} />}
        {gallery.selfieSearch && (
          <Selfie
            gallery={gallery}
            source={source.value}
            isAsking={isAskingSelfie}
            onFound={(imageId, until) => show({ kind: "selfie", imageId, until })}
            onForgotten={() => show(first)}
          />
        )}
      </div>
      {source.value && (
        <Results
          key={round.value}
          gallery={gallery}
          source={source.value}
          onOtherSelfie={() => {
            if (source.value?.kind === "selfie") forgetSelfie(source.value.imageId);
            show(first);
            isAskingSelfie.value = true;
          }}
        />
      )}
    </>
  );
}

/** Without a number it goes back to what the gallery shows at first. */
function BibForm({ source, onSearch }: { source: Source | null; onSearch: (text: string) => void }) {
  const text = useSignal(source?.kind === "bib" ? source.text : "");
  const submit = (event: Event) => {
    event.preventDefault();
    const asked = text.value.trim();
    // As the service says: what has no letter and no digit is no bib.
    onSearch(/[\p{L}\p{N}]/u.test(asked) ? asked : "");
  };
  return (
    <form class="finder" role="search" onSubmit={submit}>
      <label for="bib" class="finder-title">{t("bib.title")}</label>
      <div class="finder-row">
        <input
          id="bib"
          class="input bib-input"
          // Bibs may have letters, which the keyboard of digits of phones has not.
          inputMode="text"
          autoComplete="off"
          autoCapitalize="characters"
          enterKeyHint="search"
          maxLength={32}
          placeholder="1234"
          value={text.value}
          onInput={(event) => (text.value = event.currentTarget.value)}
        />
        <Button kind="main" type="submit">{t("bib.find")}</Button>
      </div>
    </form>
  );
}

function Footer({ gallery }: { gallery: Gallery | undefined }) {
  return (
    <footer class="gallery-foot">
      <p class="row">
        {gallery?.contact && <span>{t("foot.contact", { contact: gallery.contact })}</span>}
        {gallery?.privacyUrl && <a href={gallery.privacyUrl} rel="noreferrer">{t("foot.privacy")}</a>}
        {gallery?.expiresAt && <span>{t("foot.until", { time: formatTime(gallery.expiresAt) })}</span>}
      </p>
      <label class="language">
        <span class="visually-hidden">{t("foot.language")}</span>
        <select
          class="input"
          value={language.value}
          onChange={(event) => {
            const chosen = event.currentTarget.value;
            if (isLanguage(chosen)) void switchLanguage(chosen);
          }}
        >
          {Object.entries(languages).map(([tag, name]) => <option key={tag} value={tag}>{name}</option>)}
        </select>
      </label>
    </footer>
  );
}
