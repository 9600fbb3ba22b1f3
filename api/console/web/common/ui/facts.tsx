/** What is known of something: names and values. */

import { type ComponentChildren, Fragment } from "preact";

/** A name and its value; one without a value is left out. */
export type Fact = [name: string, value: ComponentChildren];

/** The list of facts. */
export function Facts({ facts, small = false }: { facts: Fact[]; small?: boolean }) {
  return (
    <dl class={small ? "facts small" : "facts"}>
      {facts
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
    </dl>
  );
}
