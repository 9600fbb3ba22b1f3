/** An amount by day, drawn as bars. The numbers are in a table beside it. */

import { useId } from "preact/hooks";

import { formatDay, formatNumber } from "../common/format";
import type { Period } from "./period";

/** Parts that the axis has at least, unless they would be smaller than what is counted. */
const PARTS = 3;

/** The round values of an axis from 0 to at least the largest; `least` is the smallest step. */
export function axisOf(largest: number, least: number): number[] {
  const rough = Math.max(largest / PARTS, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power;
  const count = Math.max(Math.ceil(largest / step), 1);
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

/** The days of a period, both ends included. */
function listDays({ from, to }: Period): string[] {
  const days: string[] = [];
  for (let time = Date.parse(from); time <= Date.parse(to); time += 86_400_000) {
    days.push(new Date(time).toISOString().slice(0, 10));
  }
  return days;
}

/** The chart; `digits` are those after the point of what is counted. */
export function DayChart(props: { title: string; amounts: ReadonlyMap<string, number>; period: Period; digits?: number }) {
  const { title, amounts, period, digits = 0 } = props;
  const id = useId();
  const axis = axisOf(Math.max(...amounts.values(), 0), 10 ** -digits);
  const top = axis.at(-1) ?? 1;
  const share = (amount: number) => `${(amount / top) * 100}%`;
  return (
    <figure class="panel" aria-labelledby={id}>
      <figcaption>
        <h2 id={id}>{title}</h2>
      </figcaption>
      <div class="day-chart small quiet" aria-hidden="true">
        <div class="day-axis numeric">
          {axis.map((value) => (
            <span key={value}>{formatNumber(value, digits)}</span>
          ))}
        </div>
        <div class="days">
          {axis.map((value) => (
            <hr key={value} style={{ bottom: share(value) }} />
          ))}
          {listDays(period).map((day) => {
            const amount = amounts.get(day) ?? 0;
            return (
              <span key={day} title={`${formatDay(day)}: ${formatNumber(amount, digits)}`}>
                <span style={{ height: share(amount) }} />
              </span>
            );
          })}
        </div>
        <div class="day-ends">
          <span>{formatDay(period.from)}</span>
          <span>{formatDay(period.to)}</span>
        </div>
      </div>
    </figure>
  );
}
