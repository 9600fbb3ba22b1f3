/** Pages whose program is loaded when one of them is first shown, so that the first page of a visit waits for less. */

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";

import { ApiFailure } from "./http";
import { ErrorState, Loading } from "./ui/states";

const CONNECTION_LOST = new ApiFailure(0, "CONNECTION_LOST", "a part of the program could not be loaded");

/** A page of a part of the program; a part is loaded once. */
export function onDemand<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  const loaded = signal<{ Page: FunctionComponent<P> } | undefined>(undefined);
  const hasFailed = signal(false);
  const start = () => {
    hasFailed.value = false;
    load().then(
      (Page) => (loaded.value = { Page }),
      () => (hasFailed.value = true),
    );
  };
  return function OnDemand(props: P) {
    useEffect(() => {
      if (!loaded.value) start();
    }, []);
    // A newer version of the service has other parts, and browsers keep a failure: only a reload gets what is there now.
    if (hasFailed.value) return <ErrorState failure={CONNECTION_LOST} onRetry={() => location.reload()} />;
    if (!loaded.value) return <Loading lines={4} height="3rem" />;
    const { Page } = loaded.value;
    return <Page {...props} />;
  };
}
