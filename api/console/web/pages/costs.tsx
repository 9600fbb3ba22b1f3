/** What processing the photos of an album has cost, by stage, which of them were the dearest, and what is stored. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";

import type { CostRow, Costs, DearPhoto, StorageReport } from "../api";
import { call } from "../calls";
import { formatBytes, formatFixed, formatNumber } from "../common/format";
import { useLoad } from "../common/load";
import { link } from "../common/router";
import { Bar } from "../common/ui/bar";
import { Empty, Loaded } from "../common/ui/states";
import { type Column, Table } from "../common/ui/table";
import { t, tName } from "../text";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { daysBefore, type Period, PeriodFields, today } from "./period";

/** In the order in which photos pass them, then what is beside them; others come first. */
const STAGES = "feed fetch decode resize detect embed read index overhead mark probe face_search".split(" ");

/** Sums are for so many photos: one photo costs too little to be read. */
const PHOTOS = 1000;
/** Less than this a month is nothing to speak of. */
const LEAST_MONEY = 0.005;

/** The page of an album's costs. */
export function CostsPage({ album }: AlbumProps) {
  const period = useSignal<Period>({ from: daysBefore(29), to: today() });
  const { from, to } = period.value;
  const costs = useLoad(
    (signal) => call("usage/costs", { albumId: album.id, from, to, by: ["stage"] }, signal),
    [album.id, from, to],
  );
  return (
    <AlbumFrame album={album} section="costs">
      <div class="row">
        <PeriodFields period={period} />
      </div>
      <Loaded load={costs} lines={4} height="2.5rem">
        {({ rows, perPhoto, photos, storage }) =>
          perPhoto === null || rows.length === 0 ? (
            <>
              <Empty title={t("costs.none")} />
              {storage.objects > 0 && (
                <section class="panel" aria-label={t("costs.stored")}>
                  <dl class="figures">
                    <StorageFigures storage={storage} />
                  </dl>
                </section>
              )}
            </>
          ) : (
            <>
              <section class="panel" aria-label={t("costs.per_photo")}>
                <dl class="figures">
                  <div>
                    <dt>{t("costs.photos")}</dt>
                    <dd>{formatNumber(photos)}</dd>
                  </div>
                  <div>
                    <dt>{t("costs.cpu_per_photo")}</dt>
                    <dd>{formatSeconds(perPhoto.cpuSeconds)}</dd>
                  </div>
                  {perPhoto.gpuSeconds > 0 && (
                    <div>
                      <dt>{t("costs.device_per_photo")}</dt>
                      <dd>{formatSeconds(perPhoto.gpuSeconds)}</dd>
                    </div>
                  )}
                  {perPhoto.money !== null && (
                    <div>
                      <dt>{moneyPerPhotos()}</dt>
                      <dd>{formatMoney(perPhoto.money * PHOTOS)}</dd>
                    </div>
                  )}
                  <StorageFigures storage={storage} />
                </dl>
                {perPhoto.money !== null && <p class="small quiet">{t("costs.currency")}</p>}
              </section>
              <CostTable rows={rows} />
            </>
          )
        }
      </Loaded>
      <DearestPhotos albumId={album.id} />
    </AlbumFrame>
  );
}

function StorageFigures({ storage: { bytes, money } }: { storage: StorageReport }) {
  return (
    <>
      <div>
        <dt>{t("costs.stored")}</dt>
        <dd>{formatBytes(bytes)}</dd>
      </div>
      {money !== null && money >= LEAST_MONEY && (
        <div>
          <dt>{t("costs.stored_month")}</dt>
          <dd>{formatMoney(money)}</dd>
        </div>
      )}
    </>
  );
}

/** The columns of time and money that some of the rows have; `photosOf` says of how many photos the costs of a row are. */
function costColumns<T extends Costs>(rows: T[], photosOf: (row: T) => number): Column<T>[] {
  const hasDevice = rows.some((row) => row.gpuSeconds > 0);
  const hasMoney = rows.some((row) => row.money !== null);
  const moneyOf = (row: T) => (row.money !== null && photosOf(row) > 0 ? (row.money / photosOf(row)) * PHOTOS : null);
  const most = Math.max(...rows.map((row) => moneyOf(row) ?? 0));
  const longest = Math.max(...rows.map((row) => Math.max(row.cpuSeconds, row.gpuSeconds)));
  const time = (seconds: number) => formatSeconds(seconds, longest);
  const cpu = { name: t("costs.cpu"), numeric: true, cell: (row: T) => time(row.cpuSeconds) };
  const device = { name: t("costs.device"), numeric: true, cell: (row: T) => time(row.gpuSeconds) };
  const money = {
    name: moneyPerPhotos(),
    numeric: true,
    cell: (row: T) => {
      const sum = moneyOf(row);
      return sum === null ? "–" : formatMoney(sum, most);
    },
  };
  return [cpu, ...(hasDevice ? [device] : []), ...(hasMoney ? [money] : [])];
}

/** How long the bars of costs are, as parts of the dearest: by money where there are prices, else by time. */
function measureBars(rows: Costs[]): (costs: Costs) => number {
  const hasMoney = rows.some((row) => row.money);
  const weigh = (row: Costs) => (hasMoney ? (row.money ?? 0) : row.cpuSeconds + row.gpuSeconds);
  const most = Math.max(...rows.map(weigh));
  return (row) => (most > 0 ? weigh(row) / most : 0);
}

/** A name above its bar. */
function Weighed({ name, share }: { name: ComponentChildren; share: number }) {
  return (
    <div class="weighed">
      {name}
      <Bar total={1} parts={[{ kind: "ready", amount: share }]} />
    </div>
  );
}

function CostTable({ rows }: { rows: CostRow[] }) {
  const share = measureBars(rows);
  return (
    <Table
      label={t("costs.by_stage")}
      rows={rows.toSorted((a, b) => STAGES.indexOf(a.stage ?? "") - STAGES.indexOf(b.stage ?? ""))}
      rowKey={(row) => row.stage ?? ""}
      columns={[
        {
          name: t("stages.stage"),
          cell: (row) => <Weighed name={tName("stage", row.stage ?? "")} share={share(row)} />,
        },
        { name: t("costs.photos"), numeric: true, cell: (row) => formatNumber(row.photos) },
        ...costColumns(rows, (row) => row.photos),
        { name: t("costs.read"), numeric: true, cell: (row) => (row.bytesRead ? formatBytes(row.bytesRead) : "–") },
        { name: t("costs.written"), numeric: true, cell: (row) => (row.bytesWritten ? formatBytes(row.bytesWritten) : "–") },
      ]}
    />
  );
}

/** The dearest photos over all attempts, whatever the period. */
function DearestPhotos({ albumId }: { albumId: string }) {
  const dearest = useLoad((signal) => call("usage/dearest", { albumId }, signal), [albumId]);
  return (
    <Loaded load={dearest} lines={4} height="2.5rem">
      {({ photos, looked, total }) =>
        photos.length > 0 && (
          <section class="stack" aria-labelledby="dearest-title">
            <h2 id="dearest-title">{t("costs.dearest")}</h2>
            {looked < total && <p class="quiet">{t("costs.dearest_of", { count: formatNumber(looked) })}</p>}
            <DearestTable albumId={albumId} photos={photos} />
          </section>
        )
      }
    </Loaded>
  );
}

function DearestTable({ albumId, photos }: { albumId: string; photos: DearPhoto[] }) {
  const share = measureBars(photos);
  const name = (photo: DearPhoto) => (
    <a class="dear-photo" href={link(`/albums/${albumId}/photos/${photo.photoId}`)}>
      {photo.thumbnailUrl && <img src={photo.thumbnailUrl} alt="" loading="lazy" />}
      {photo.filename}
    </a>
  );
  return (
    <Table
      label={t("costs.dearest")}
      rows={photos}
      rowKey={(photo) => photo.photoId}
      columns={[
        { name: t("costs.photo"), cell: (photo) => <Weighed name={name(photo)} share={share(photo)} /> },
        ...costColumns(photos, () => 1),
      ]}
    />
  );
}

/** A time beside others, all with as many digits. */
function formatSeconds(seconds: number, longest = seconds): string {
  return t("costs.seconds", { seconds: formatFixed(seconds, longest < 100 ? 3 : 0) });
}

/** The name of what `PHOTOS` photos cost. The currency is whatever the operator's prices are in. */
function moneyPerPhotos(): string {
  return t("costs.money_per_thousand", { count: formatNumber(PHOTOS) });
}

/** A sum beside others, all with as many digits as show three of the largest. */
function formatMoney(money: number, largest = money): string {
  const digits = largest > 0 ? 2 - Math.floor(Math.log10(largest)) : 2;
  return formatFixed(money, Math.min(Math.max(digits, 2), 6));
}
