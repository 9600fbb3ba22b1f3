/** What a page shows while there is nothing, nothing yet, or a failure. */

import type { ComponentChildren } from "preact";

import { formatDuration } from "../format";
import type { ApiFailure } from "../http";
import type { Load } from "../load";
import { translate, translateIfThere } from "../words";
import { Button } from "./button";

/** What a failure means, in words: of its most exact code that has some, else of its status. */
export function describeFailure(failure: ApiFailure): string {
  const wait = failure.data.tryAgainIn;
  const values = { time: formatDuration(Math.ceil(wait ?? 0)) };
  const keys = [failure.reason, failure.code, failure.status >= 500 ? "INTERNAL_SERVER_ERROR" : "UNKNOWN"];
  const key = keys.map((code) => `ui.failure.${code}`).find((name) => translateIfThere(name));
  const issues = failure.data.issues ?? [];
  if (issues.length > 0) return issues.map((issue) => [issue.path.join("."), issue.message].filter(Boolean).join(": ")).join("; ");
  return translate(key ?? "ui.failure.UNKNOWN", values);
}

/** Says that something failed, where it did. Nothing without a failure. */
export function Failed({ failure }: { failure: ApiFailure | undefined }) {
  return (
    <div role="alert" class="failed-place">
      {failure && (
        <p class="failed">
          {describeFailure(failure)}
          {failure.requestId && failure.status >= 500 && <code class="small"> {failure.requestId}</code>}
        </p>
      )}
    </div>
  );
}

interface ErrorStateProps {
  failure: ApiFailure;
  /** The words on the button, where the same is not tried again. */
  action?: string;
  onRetry?: () => void;
}

/** A page or a part of it that could not be loaded. */
export function ErrorState({ failure, action, onRetry }: ErrorStateProps) {
  return (
    <div class="state" role="alert">
      <p>{describeFailure(failure)}</p>
      {failure.requestId && <code class="small quiet">{failure.requestId}</code>}
      {onRetry && failure.status !== 403 && failure.status !== 404 && (
        <Button onClick={onRetry}>{action ?? translate("ui.tryAgain")}</Button>
      )}
    </div>
  );
}

/** A place where nothing is yet, and what would bring something. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <p class="state-title">{title}</p>
      {children}
    </div>
  );
}

/** As much space as what is being loaded will take. */
export function Loading({ lines = 3, height = "1.25rem" }: { lines?: number; height?: string }) {
  return (
    <div class="loading" role="status">
      <span class="visually-hidden">{translate("ui.loading")}</span>
      {Array.from({ length: lines }, (_, line) => (
        <div key={line} class="skeleton" style={{ height }} />
      ))}
    </div>
  );
}

/** What was loaded, or what is in its place. */
export function Loaded<T>(props: { load: Load<T>; lines?: number; height?: string; children: (value: T) => ComponentChildren }) {
  const { load, lines, height, children } = props;
  const value = load.value.value;
  const failure = load.failure.value;
  if (value !== undefined) {
    return (
      <>
        <Failed failure={failure} />
        {children(value)}
      </>
    );
  }
  if (failure) return <ErrorState failure={failure} onRetry={load.reload} />;
  return <Loading {...(lines === undefined ? {} : { lines })} {...(height === undefined ? {} : { height })} />;
}
