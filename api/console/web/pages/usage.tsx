/** What was used, by day, and the credits that are left. */

import { useSignal } from "@preact/signals";

import type { Operations, UsageRow } from "../api";
import { call } from "../calls";
import { formatDay, formatNumber } from "../common/format";
import { useLoad } from "../common/load";
import { Button } from "../common/ui/button";
import { Empty, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { Page } from "../shell";
import { t, tName } from "../text";
import { saveFile, toCsv } from "./download";
import { daysBefore, type Period, PeriodFields, today } from "./period";

/** The page of the usage. */
export function UsagePage() {
  const period = useSignal<Period>({ from: daysBefore(29), to: today() });
  const { from, to } = period.value;
  const credits = useLoad((signal) => call("credits/get", {}, signal), []);
  const usage = useLoad((signal) => call("usage/get", { from, to, by: ["day", "operation"] }, signal), [from, to]);
  const rows = usage.value.value?.rows ?? [];
  const save = () => saveFile(`photofinish-${from}-${to}.csv`, "text/csv", usageCsv(rows));
  const download = rows.length > 0 && <Button onClick={save}>{t("usage.csv")}</Button>;
  return (
    <Page title={t("nav.usage")} actions={download}>
      <Loaded load={credits} lines={1} height="6rem">
        {(report) => <Credits report={report} />}
      </Loaded>
      <PeriodFields period={period} />
      <Loaded load={usage} lines={4} height="2.5rem">
        {(report) =>
          report.rows.length === 0 ? (
            <Empty title={t("usage.none")} />
          ) : (
            <>
              <DayBars rows={report.rows} from={from} to={to} />
              <UsageTable rows={report.rows} />
            </>
          )
        }
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
            <dd>{formatNumber(amount, 2)}</dd>
          </div>
        ))}
      </dl>
      {report.unlimited && <p class="quiet">{t("usage.unlimited")}</p>}
    </section>
  );
}

/** The days from one to another, both included. */
function listDays(from: string, to: string): string[] {
  const days: string[] = [];
  for (let time = Date.parse(from); time <= Date.parse(to); time += 86_400_000) {
    days.push(new Date(time).toISOString().slice(0, 10));
  }
  return days;
}

/** Operations by day, drawn; the table below has the numbers. */
function DayBars({ rows, from, to }: { rows: UsageRow[]; from: string; to: string }) {
  const days = listDays(from, to);
  const counts = new Map<string, number>();
  for (const row of rows) counts.set(row.day ?? "", (counts.get(row.day ?? "") ?? 0) + row.count);
  const most = Math.max(...counts.values(), 1);
  return (
    <figure class="panel">
      <figcaption class="quiet">{t("usage.per_day", { most: formatNumber(most) })}</figcaption>
      <div class="days" aria-hidden="true">
        {days.map((day) => {
          const count = counts.get(day) ?? 0;
          return (
            <span key={day} title={`${formatDay(day)}: ${formatNumber(count)}`}>
              <span style={{ height: `${(count / most) * 100}%` }} />
            </span>
          );
        })}
      </div>
      <div class="row row-apart small quiet" aria-hidden="true">
        <span>{formatDay(from)}</span>
        <span>{formatDay(to)}</span>
      </div>
    </figure>
  );
}

function UsageTable({ rows }: { rows: UsageRow[] }) {
  return (
    <Table
      label={t("nav.usage")}
      rows={rows.toReversed()}
      rowKey={(row) => `${row.day} ${row.operation}`}
      columns={[
        { name: t("usage.day"), cell: (row) => formatDay(row.day ?? "") },
        { name: t("usage.operation"), cell: (row) => tName("operation", row.operation ?? "") },
        { name: t("usage.count"), numeric: true, cell: (row) => formatNumber(row.count) },
        { name: t("usage.credits"), numeric: true, cell: (row) => formatNumber(row.credits, 2) },
      ]}
    />
  );
}

/** The names of the columns are those of the API, so that scripts can rely on them. */
function usageCsv(rows: UsageRow[]): string {
  const lines = rows.map((row) => [row.day ?? "", row.operation ?? "", row.count, row.credits]);
  return toCsv([["day", "operation", "count", "credits"], ...lines]);
}
