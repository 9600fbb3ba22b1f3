/** Shares of a whole, drawn. What is drawn is always beside in words or numbers, so it is hidden from readers. */

/** A part of a bar. */
export interface Part {
  /** Of which kind, which gives its colour. */
  kind: "ready" | "processing" | "queued" | "failed" | "blocked";
  amount: number;
}

/** A bar of parts. A part that is there is seen, however small. */
export function Bar({ parts, total }: { parts: Part[]; total: number }) {
  const whole = Math.max(total, 1);
  return (
    <div class="bar" aria-hidden="true">
      {parts
        .filter((part) => part.amount > 0)
        .map((part) => (
          <span
            key={part.kind}
            class={`bar-part bar-${part.kind}`}
            style={{ width: `${(part.amount / whole) * 100}%` }}
          />
        ))}
    </div>
  );
}

/** A word on what state something is in, with its colour. */
export function Tag({ kind, children }: { kind: "good" | "busy" | "bad" | "plain"; children: string }) {
  return <span class={`tag tag-${kind}`}>{children}</span>;
}
