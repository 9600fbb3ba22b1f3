/** What processing the photos of an album has cost, by stage. */

import { useSignal } from "@preact/signals";

import type { CostRow } from "../api";
import { call } from "../calls";
import { formatBytes, formatNumber } from "../common/format";
import { useLoad } from "../common/load";
import { Empty, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { t, tName } from "../text";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { daysBefore, type Period, PeriodFields, today } from "./period";

/** In the order in which photos pass them; others come first. */
const STAGES = ["feed", "fetch", "decode", "resize", "detect", "embed", "read", "index"];

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
      <PeriodFields period={period} />
      <Loaded load={costs} lines={4} height="2.5rem">
        {({ rows, perPhoto, photos }) =>
          perPhoto === null || rows.length === 0 ? (
            <Empty title={t("costs.none")} />
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
                  {perPhoto.deviceSeconds > 0 && (
                    <div>
                      <dt>{t("costs.device_per_photo")}</dt>
                      <dd>{formatSeconds(perPhoto.deviceSeconds)}</dd>
                    </div>
                  )}
                  {perPhoto.money !== null && (
                    <div>
                      <dt>{t("costs.money_per_thousand", { count: formatNumber(1000) })}</dt>
                      <dd>{formatMoney(perPhoto.money * 1000)}</dd>
                    </div>
                  )}
                </dl>
              </section>
              <CostTable rows={rows} />
            </>
          )
        }
      </Loaded>
    </AlbumFrame>
  );
}

function CostTable({ rows }: { rows: CostRow[] }) {
  const hasMoney = rows.some((row) => row.money !== null);
  const hasDevice = rows.some((row) => row.deviceSeconds > 0);
  const device = { name: t("costs.device"), numeric: true, cell: (row: CostRow) => formatSeconds(row.deviceSeconds) };
  const money = {
    name: t("costs.money"),
    numeric: true,
    cell: (row: CostRow) => (row.money === null ? "–" : formatMoney(row.money)),
  };
  return (
    <Table
      label={t("costs.by_stage")}
      rows={rows.toSorted((a, b) => STAGES.indexOf(a.stage ?? "") - STAGES.indexOf(b.stage ?? ""))}
      rowKey={(row) => row.stage ?? ""}
      columns={[
        { name: t("stages.stage"), cell: (row) => tName("stage", row.stage ?? "") },
        { name: t("costs.photos"), numeric: true, cell: (row) => formatNumber(row.photos) },
        { name: t("costs.cpu"), numeric: true, cell: (row) => formatSeconds(row.cpuSeconds) },
        ...(hasDevice ? [device] : []),
        { name: t("costs.read"), numeric: true, cell: (row) => (row.bytesRead ? formatBytes(row.bytesRead) : "–") },
        { name: t("costs.written"), numeric: true, cell: (row) => (row.bytesWritten ? formatBytes(row.bytesWritten) : "–") },
        ...(hasMoney ? [money] : []),
      ]}
    />
  );
}

function formatSeconds(seconds: number): string {
  return t("costs.seconds", { seconds: formatNumber(seconds, seconds < 10 ? 3 : 0) });
}

/** Small sums keep their first digits that count. The currency is whatever the operator's prices are in. */
function formatMoney(money: number): string {
  const digits = money > 0 && money < 1 ? Math.min(Math.ceil(-Math.log10(money)) + 2, 12) : 2;
  return formatNumber(money, digits);
}
