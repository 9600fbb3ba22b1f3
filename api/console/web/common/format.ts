/** Numbers, times and sizes as the visitor's language writes them. */

import { language } from "./words";

/** A number with at most `digits` digits after the point. */
export function formatNumber(value: number, digits = 0): string {
  return new Intl.NumberFormat(language.value, { maximumFractionDigits: digits }).format(value);
}

/** A number with exactly `digits` digits after the point, so that numbers below each other can be compared. */
export function formatFixed(value: number, digits: number): string {
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return new Intl.NumberFormat(language.value, options).format(value);
}

/** A share, 0 to 1, as a percentage. */
export function formatShare(share: number, digits = 0): string {
  return new Intl.NumberFormat(language.value, { style: "percent", maximumFractionDigits: digits }).format(share);
}

/** A confidence, 0 to 100, as a percentage; never rounded up to a certain one. */
export function formatConfidence(confidence: number): string {
  return formatShare(Math.floor(confidence) / 100);
}

const UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"] as const;

/** A size in the largest unit that leaves a number of at least one. */
export function formatBytes(bytes: number): string {
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = value < 10 && unit > 0 ? 1 : 0;
  const options: Intl.NumberFormatOptions = { style: "unit", unit: UNITS[unit] ?? "byte", maximumFractionDigits: digits };
  return new Intl.NumberFormat(language.value, options).format(value);
}

/** A duration in its two largest units, such as `3 min 20 s`, or in words. */
export function formatDuration(seconds: number, unitDisplay: "short" | "long" = "short"): string {
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "day"],
    [Math.floor((seconds % 86400) / 3600), "hour"],
    [Math.floor((seconds % 3600) / 60), "minute"],
    [Math.floor(seconds % 60), "second"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  const shown = first < 0 ? parts.slice(3) : parts.slice(first, first + 2).filter(([value]) => value > 0);
  const format = (value: number, unit: string) =>
    new Intl.NumberFormat(language.value, { style: "unit", unit, unitDisplay }).format(value);
  return shown.map(([value, unit]) => format(value, unit)).join(" ");
}

/** A day and a time of day. */
export function formatTime(time: string): string {
  return new Intl.DateTimeFormat(language.value, { dateStyle: "medium", timeStyle: "short" }).format(new Date(time));
}

/** A time of day. */
export function formatTimeOfDay(time: string): string {
  return new Intl.DateTimeFormat(language.value, { timeStyle: "short" }).format(new Date(time));
}

/** A day. Days without a time of day are not moved by the time zone. */
export function formatDay(day: string): string {
  const isDay = day.length === 10;
  const options: Intl.DateTimeFormatOptions = isDay ? { dateStyle: "medium", timeZone: "UTC" } : { dateStyle: "medium" };
  return new Intl.DateTimeFormat(language.value, options).format(new Date(day));
}

/** The day of a time where its reader is, as a field for days has it. */
export function localDay(time: string): string {
  const there = new Date(time);
  const digits = (value: number) => String(value).padStart(2, "0");
  return `${there.getFullYear()}-${digits(there.getMonth() + 1)}-${digits(there.getDate())}`;
}

/** The last second of such a day, in UTC. */
export function endOfLocalDay(day: string): string {
  return new Date(`${day}T23:59:59`).toISOString();
}

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];

/** How long ago, or in how long, a time is. */
export function formatAgo(time: string): string {
  const seconds = (new Date(time).getTime() - Date.now()) / 1000;
  const format = new Intl.RelativeTimeFormat(language.value, { numeric: "auto" });
  for (const [unit, size] of STEPS) {
    if (Math.abs(seconds) >= size) return format.format(Math.trunc(seconds / size), unit);
  }
  return format.format(Math.trunc(seconds), "second");
}

/** A list in words, such as `a, b and c`. */
export function formatList(items: string[]): string {
  return new Intl.ListFormat(language.value).format(items);
}

/** A count of units, such as `3 days`. */
export function formatDays(days: number): string {
  return new Intl.NumberFormat(language.value, { style: "unit", unit: "day", unitDisplay: "long" }).format(days);
}
