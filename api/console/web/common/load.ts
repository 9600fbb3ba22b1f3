/** What pages wait for: loads, actions of the visitor, and streams. */

import { type Signal, useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { type ApiFailure, toApiFailure } from "./http";

/** Something that is being loaded. The last value stays while it is loaded again. */
export interface Load<T> {
  value: Signal<T | undefined>;
  failure: Signal<ApiFailure | undefined>;
  isLoading: Signal<boolean>;
  reload: () => void;
}

/** Loads now, again when one of `inputs` changes, and on `reload`. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, inputs: readonly unknown[]): Load<T> {
  const value = useSignal<T | undefined>(undefined);
  const failure = useSignal<ApiFailure | undefined>(undefined);
  const isLoading = useSignal(true);
  const round = useSignal(0);
  const current = round.value;
  useEffect(() => {
    const abort = new AbortController();
    isLoading.value = true;
    load(abort.signal).then(
      (loaded) => {
        if (abort.signal.aborted) return;
        value.value = loaded;
        failure.value = undefined;
        isLoading.value = false;
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        failure.value = toApiFailure(error);
        isLoading.value = false;
      },
    );
    return () => abort.abort();
  }, [...inputs, current]);
  return { value, failure, isLoading, reload: () => (round.value += 1) };
}

/** How soon what goes on is looked at again. It takes some seconds. */
const LOOK_AGAIN_MS = 3000;

/** Reloads again and again as long as what was loaded says that something goes on. */
export function useReloading<T>(load: Load<T>, goesOn: (value: T) => boolean, reload = load.reload): void {
  const value = load.value.value;
  const isOn = value !== undefined && goesOn(value);
  useEffect(() => {
    if (!isOn) return;
    const timer = setTimeout(reload, LOOK_AGAIN_MS);
    return () => clearTimeout(timer);
    // A failure is no reason to stop, and leaves the value as it is.
  }, [isOn, value, load.failure.value]);
}

/** Something the visitor may do, one at a time. */
export interface Action<A extends unknown[]> {
  run: (...input: A) => Promise<void>;
  isBusy: Signal<boolean>;
  failure: Signal<ApiFailure | undefined>;
  clear: () => void;
}

/** Makes an action that keeps its failure for the page to show. */
export function useAction<A extends unknown[]>(act: (...input: A) => Promise<unknown>): Action<A> {
  const isBusy = useSignal(false);
  const failure = useSignal<ApiFailure | undefined>(undefined);
  const run = async (...input: A) => {
    if (isBusy.value) return;
    isBusy.value = true;
    failure.value = undefined;
    try {
      await act(...input);
    } catch (error) {
      failure.value = toApiFailure(error);
    }
    isBusy.value = false;
  };
  return { run, isBusy, failure, clear: () => (failure.value = undefined) };
}

/** Runs something as long as the page is there and the inputs are the same. */
export function useWhile(begin: (signal: AbortSignal) => void, inputs: readonly unknown[]): void {
  useEffect(() => {
    const abort = new AbortController();
    begin(abort.signal);
    return () => abort.abort();
  }, inputs);
}

/**
 * Runs something as long as the page is seen too, and begins again when it is seen again. For streams: browsers open six
 * connections to a host at once, and those of pages in the background would leave none for the page that is seen.
 */
export function useWhileSeen(begin: (signal: AbortSignal) => void, inputs: readonly unknown[]): void {
  useEffect(() => {
    let abort = new AbortController();
    // At once, not by drawing again: in the background that comes late.
    const restart = () => {
      abort.abort();
      if (document.hidden) return;
      abort = new AbortController();
      begin(abort.signal);
    };
    document.addEventListener("visibilitychange", restart);
    restart();
    return () => {
      document.removeEventListener("visibilitychange", restart);
      abort.abort();
    };
  }, inputs);
}

/** A value that changes at most every `milliseconds`, for readers who are told of every change. */
export function useCalm<T>(source: Signal<T>, milliseconds = 5000): Signal<T> {
  const calm = useSignal(source.value);
  useEffect(() => {
    const timer = setInterval(() => (calm.value = source.value), milliseconds);
    return () => clearInterval(timer);
  }, [source, milliseconds]);
  return useComputed(() => calm.value);
}
