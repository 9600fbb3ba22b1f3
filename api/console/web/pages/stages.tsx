/** The pipeline as a drawn row of stages, which is a table underneath. */

import { useId } from "preact/hooks";

import type { Stage } from "../api";
import { formatNumber, formatShare } from "../common/format";
import { Bar } from "../common/ui/bar";
import { Fold } from "../common/ui/fold";
import { t, tName } from "../text";

/**
 * The stages in the order in which photos pass them; the bottleneck is lit, and named in words. Narrow windows fold idle
 * stages.
 */
export function StageGraph(props: { stages: Stage[]; bottleneck: string | null; isIdle?: boolean }) {
  const { stages, bottleneck, isIdle = false } = props;
  const id = useId();
  const names = [t("stages.depth"), t("stages.rate"), t("stages.busy"), t("stages.blocked")];
  return (
    <section class="panel" aria-labelledby={id}>
      <div class="row row-apart">
        <h2 id={id}>{t("stages.title")}</h2>
        <p class={bottleneck ? "stage-words" : "quiet"}>
          {bottleneck
            ? t("stages.bottleneck", { stage: tName("stage", bottleneck), what: tName("stage_does", bottleneck) })
            : t("stages.no_bottleneck")}
        </p>
      </div>
      <Fold label={t("stages.show")} isOpen={!isIdle}>
        {/* Drawn as boxes, the elements lose their roles, so these are written out. */}
        <table class="stages" role="table" aria-labelledby={id}>
          <thead role="rowgroup" class="visually-hidden">
            <tr role="row">
              <th role="columnheader">{t("stages.stage")}</th>
              {names.map((name) => (
                <th key={name} role="columnheader">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {stages.map((stage) => (
              <StageRow key={stage.name} stage={stage} names={names} isBottleneck={stage.name === bottleneck} />
            ))}
          </tbody>
        </table>
        <p class="small quiet">{t("stages.explained")}</p>
      </Fold>
    </section>
  );
}

function StageRow({ stage, names, isBottleneck }: { stage: Stage; names: string[]; isBottleneck: boolean }) {
  const cells = [
    formatNumber(stage.depth),
    formatNumber(stage.photosPerSecond, 1),
    formatShare(stage.busy),
    formatShare(stage.blocked),
  ];
  return (
    <tr role="row" class={isBottleneck ? "stage stage-lit" : "stage"}>
      <th role="rowheader" scope="row">
        {tName("stage", stage.name)}
        <Bar
          total={1}
          parts={[
            { kind: isBottleneck ? "processing" : "ready", amount: Math.min(stage.busy, 1) },
            { kind: "blocked", amount: Math.min(stage.blocked, Math.max(1 - stage.busy, 0)) },
          ]}
        />
      </th>
      {cells.map((cell, index) => (
        <td key={index} role="cell">
          <span class="stage-name" aria-hidden="true">
            {names[index]}
          </span>
          <span class="numeric">{cell}</span>
        </td>
      ))}
    </tr>
  );
}
