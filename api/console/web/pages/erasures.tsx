/** What was erased from an album, or from all of them, with the receipts; and the removal of a runner. */

import { useSignal } from "@preact/signals";

import type { Erasure } from "../api";
import { call } from "../calls";
import { formatBytes, formatNumber, formatTime } from "../common/format";
import { useAction, useLoad, useReloading } from "../common/load";
import { place, setQuery } from "../common/router";
import { Tag } from "../common/ui/bar";
import { Button } from "../common/ui/button";
import { Dialog } from "../common/ui/dialog";
import { type Fact, Facts } from "../common/ui/facts";
import { Empty, Failed, Loaded } from "../common/ui/states";
import { type Column, Table } from "../common/ui/table";
import { may } from "../session";
import { Page } from "../shell";
import { t, tCount, tName } from "../text";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { AlbumName, loadTitles, type Titles } from "./album-titles";
import { saveFile } from "./download";
import { type LoadedList, More, useLongList } from "./long-list";
import { RemoveRunner } from "./remove-runner";

/** Erasures at first, and by each press of the button for more. */
const PAGE = 200;

/** The page of an album's erasures. */
export function ErasuresPage({ album }: AlbumProps) {
  const albumId = album.id;
  const erasures = useErasures({ albumId });
  const isRemoving = useSignal(false);
  const remove = may.own.value && (
    <Button kind="danger" onClick={() => (isRemoving.value = true)}>
      {t("erasures.remove")}
    </Button>
  );
  return (
    <AlbumFrame album={album} section="erasures" actions={remove}>
      <p class="quiet">{t("erasures.hint")}</p>
      <ErasureList erasures={erasures} />
      {isRemoving.value && (
        <RemoveRunner
          albumId={albumId}
          onClose={() => (isRemoving.value = false)}
          onRemoved={() => {
            isRemoving.value = false;
            erasures.load.reload();
          }}
        />
      )}
    </AlbumFrame>
  );
}

/** The page of all erasures: the receipts of albums that are deleted are nowhere else. */
export function AllErasuresPage() {
  const erasures = useErasures({});
  const titles = useLoad(loadTitles, []);
  return (
    <Page title={t("album.erasures")}>
      <p class="quiet">{t("erasures.hint_all")}</p>
      <ErasureList erasures={erasures} titles={titles.value.value ?? new Map()} />
    </Page>
  );
}

/** Loads erasures, again and again while one is running. */
function useErasures(of: { albumId?: string }): LoadedList<Erasure> {
  const erasures = useLongList(
    PAGE,
    (page, signal) => call("erasures/list", { ...of, ...page }, signal),
    (part) => part.erasures,
    [of.albumId],
  );
  useReloading(erasures.load, ({ items }) => items.some((erasure) => erasure.state === "running"));
  return erasures;
}

/** Erasures, with their albums where there are `titles`. The address holds which receipt is open. */
function ErasureList({ erasures, titles }: { erasures: LoadedList<Erasure>; titles?: Titles }) {
  const shown = place.value.query.get("receipt");
  const receipt = erasures.load.value.value?.items.find((erasure) => erasure.receiptId === shown);
  return (
    <>
      <Loaded load={erasures.load} lines={3} height="2.5rem">
        {(page) =>
          page.items.length === 0 ? (
            <Empty title={t("erasures.none")} />
          ) : (
            <>
              <ErasureTable erasures={page.items} titles={titles} />
              <More list={erasures} />
            </>
          )
        }
      </Loaded>
      {receipt && <Receipt erasure={receipt} onClose={() => setQuery("receipt", "")} />}
    </>
  );
}

function ErasureTable({ erasures, titles }: { erasures: Erasure[]; titles: Titles | undefined }) {
  const album: Column<Erasure> = {
    name: t("album.title"),
    cell: ({ albumId }) => <AlbumName albumId={albumId} titles={titles} />,
  };
  return (
    <Table
      label={t("album.erasures")}
      rows={erasures}
      rowKey={(erasure) => erasure.receiptId}
      columns={[
        { name: t("erasures.asked"), cell: (erasure) => formatTime(erasure.askedAt) },
        ...(titles ? [album] : []),
        { name: t("erasures.subject"), cell: (erasure) => tName("subject", erasure.subject.kind) },
        {
          name: t("table.state"),
          cell: ({ state }) => <Tag kind={state === "done" ? "good" : "busy"}>{tName("erasure_state", state)}</Tag>,
        },
        { name: t("erasures.removed"), cell: (erasure) => describeRemoved(erasure) },
        {
          name: "",
          cell: ({ receiptId }) => <Button onClick={() => setQuery("receipt", receiptId)}>{t("erasures.receipt")}</Button>,
        },
      ]}
    />
  );
}

function describeRemoved({ removed }: Erasure): string {
  const words: string[] = [];
  if (removed.photos > 0) words.push(tCount("photos.count", removed.photos));
  if (removed.faces > 0) words.push(tCount("photo.faces", removed.faces));
  if (removed.texts > 0) words.push(tCount("photo.bibs", removed.texts));
  if (removed.objects > 0) words.push(tCount("erasures.objects", removed.objects, { size: formatBytes(removed.bytes) }));
  return words.join(" · ") || "–";
}

function Receipt({ erasure, onClose }: { erasure: Erasure; onClose: () => void }) {
  const { receiptId, jws, scan } = erasure;
  const left = useSignal<number | undefined>(undefined);
  const verify = useAction(async () => {
    left.value = (await call("erasures/verify", { receiptId })).left;
  });
  return (
    <Dialog title={t("erasures.receipt")} onClose={onClose} wide>
      <div class="stack">
        <ReceiptFacts erasure={erasure} />
        {scan && (
          <Table
            label={t("erasures.scan")}
            rows={scan.stores}
            rowKey={(store) => store.store}
            columns={[
              { name: t("erasures.store"), cell: (store) => tName("store", store.store) },
              { name: t("erasures.looked"), numeric: true, cell: (store) => formatNumber(store.looked) },
              { name: t("erasures.left"), numeric: true, cell: (store) => formatNumber(store.left) },
            ]}
          />
        )}
        {jws && (
          <pre class="small" tabIndex={0} aria-label={t("erasures.receipt")}>
            {jws}
          </pre>
        )}
        <p aria-live="polite">
          {left.value === 0 && t("erasures.verified")}
          {left.value !== undefined && left.value > 0 && (
            <span class="bad">{t("erasures.not_verified", { count: formatNumber(left.value) })}</span>
          )}
        </p>
        <Failed failure={verify.failure.value} />
        <div class="row row-end">
          <Button busy={verify.isBusy.value} onClick={() => void verify.run()}>
            {t("erasures.verify")}
          </Button>
          {jws && (
            <Button kind="main" onClick={() => saveFile(`${receiptId}.jws`, "application/jose", jws)}>
              {t("erasures.download")}
            </Button>
          )}
        </div>
      </div>
    </Dialog>
  );
}

function ReceiptFacts({ erasure }: { erasure: Erasure }) {
  const kept = erasure.kept.map(({ what, why }) => `${what} (${why})`).join("; ");
  const until = erasure.backups?.until;
  const facts: Fact[] = [
    [t("erasures.id"), erasure.receiptId],
    [t("erasures.subject"), tName("subject", erasure.subject.kind)],
    [t("erasures.asked"), formatTime(erasure.askedAt)],
    [t("erasures.issued"), erasure.issuedAt ? formatTime(erasure.issuedAt) : t("erasures.running")],
    [t("erasures.removed"), describeRemoved(erasure)],
    [t("erasures.kept"), kept],
    [t("erasures.backups"), erasure.backups && (until ? formatTime(until) : t("erasures.backups_not_covered"))],
  ];
  return <Facts facts={facts} />;
}
