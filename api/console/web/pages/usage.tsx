/** What was used, by day or by album, and the credits that are left. */

import { useSignal } from "@preact/signals";

import type { Operations, UsageRow } from "../api";
import { call } from "../calls";
import { formatDay, formatNumber } from "../common/format";
import { useLoad } from "../common/load";
import { place, setQuery } from "../common/router";
import { Button } from "../common/ui/button";
import { SelectField } from "../common/ui/field";
import { Empty, Loaded } from "../common/ui/states";
import { type Column, Table } from "../common/ui/table";
import { Page } from "../shell";
import { t, tName } from "../text";
import { AlbumName, loadTitles, type Titles } from "./album-titles";
import { DayChart } from "./day-chart";
import { saveFile, toCsv } from "./download";
import { daysBefore, type Period, PeriodFields, today } from "./period";

/** What rows of the table are of. */
type By = "day" | "album";

/** Digits of credits after the point. */
const CREDIT_DIGITS = 2;

/** The page of the usage. */
export function UsagePage() {
  const period = useSignal<Period>({ from: daysBefore(29), to: today() });
  const { from, to } = period.value;
  const key: By = place.value.query.get("by") === "album" ? "album" : "day";
  const credits = useLoad((signal) => call("credits/get", {}, signal), []);
  const days = useLoad((signal) => call("usage/get", { from, to, by: ["day"] }, signal), [from, to]);
  const usage = useLoad(
    async (signal) => {
      const { rows } = await call("usage/get", { from, to, by: [key, "operation"] }, signal);
      return { key, rows, titles: key === "album" ? await loadTitles(signal) : new Map<string, string>() };
    },
    [from, to, key],
  );
  const shown = usage.value.value;
  const save = () => {
    if (shown) saveFile(`photofinish-${from}-${to}.csv`, "text/csv", usageCsv(shown));
  };
  const download = shown && shown.rows.length > 0 && <Button onClick={save}>{t("usage.csv")}</Button>;
  return (
    <Page title={t("nav.usage")} actions={download}>
      <Loaded load={credits} lines={1} height="6rem">
        {(report) => <Credits report={report} />}
      </Loaded>
      <div class="row">
        <PeriodFields period={period} />
        <SelectField
          label={t("usage.by")}
          value={key}
          options={[
            ["day", t("usage.day")],
            ["album", t("album.title")],
          ]}
          onChange={(chosen) => setQuery("by", chosen === "day" ? "" : chosen)}
        />
      </div>
      <Loaded load={days} lines={1} height="12rem">
        {(report) => <Charts rows={report.rows} period={period.value} />}
      </Loaded>
      <Loaded load={usage} lines={4} height="2.5rem">
        {(report) => (report.rows.length === 0 ? <Empty title={t("usage.none")} /> : <UsageTable usage={report} />)}
      </Loaded>
    </Page>
  );
}

function Credits({ report }: { report: Operations["credits/get"][1] }) {
  const figures: [string, number][] = [
    [t("usage.balance"), report.balance],
    [t("usage.held"), report.held],
    [t("usage.spent"), report.spent],
    [t("usage.granted"), report.granted],
  ];
  return (
    <section class="panel" aria-label={t("usage.credits")}>
      <dl class="figures">
        {figures.map(([name, amount]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{formatNumber(amount, CREDIT_DIGITS)}</dd>
          </div>
        ))}
      </dl>
      {report.unlimited && <p class="quiet">{t("usage.unlimited")}</p>}
    </section>
  );
}

/** Operations by day and, where they cost any, credits by day. */
function Charts({ rows, period }: { rows: UsageRow[]; period: Period }) {
  if (rows.length === 0) return null;
  const amounts = (of: "count" | "credits") => new Map(rows.map((row) => [row.day ?? "", row[of]]));
  return (
    <div class="charts">
      <DayChart title={t("usage.operations_per_day")} amounts={amounts("count")} period={period} />
      {rows.some((row) => row.credits > 0) && (
        <DayChart
          title={t("usage.credits_per_day")}
          amounts={amounts("credits")}
          period={period}
          digits={CREDIT_DIGITS}
        />
      )}
    </div>
  );
}

interface Usage {
  key: By;
  rows: UsageRow[];
  titles: Titles;
}

function UsageTable({ usage: { key, rows, titles } }: { usage: Usage }) {
  const day: Column<UsageRow> = { name: t("usage.day"), cell: (row) => formatDay(row.day ?? "") };
  const album: Column<UsageRow> = {
    name: t("album.title"),
    cell: (row) => <AlbumName albumId={row.albumId ?? ""} titles={titles} />,
  };
  return (
    <Table
      label={t("nav.usage")}
      rows={key === "day" ? rows.toReversed() : rows}
      rowKey={(row) => `${row.day} ${row.albumId} ${row.operation}`}
      columns={[
        key === "day" ? day : album,
        { name: t("usage.operation"), cell: (row) => tName("operation", row.operation ?? "") },
        { name: t("usage.count"), numeric: true, cell: (row) => formatNumber(row.count) },
        { name: t("usage.credits"), numeric: true, cell: (row) => formatNumber(row.credits, CREDIT_DIGITS) },
      ]}
    />
  );
}

/** The names of the columns are those of the API, so that scripts can rely on them. */
function usageCsv({ key, rows, titles }: Usage): string {
  const names = key === "day" ? ["day"] : ["albumId", "title"];
  const values = ({ day = "", albumId = "" }: UsageRow) => (key === "day" ? [day] : [albumId, titles.get(albumId) ?? ""]);
  const lines = rows.map((row) => [...values(row), row.operation ?? "", row.count, row.credits]);
  return toCsv([[...names, "operation", "count", "credits"], ...lines]);
}
