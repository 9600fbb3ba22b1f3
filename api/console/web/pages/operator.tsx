/** The health of the whole service, for who operates it. */

import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

import type { PipelineOverview, Process, ServiceHealth } from "../api";
import { call, follow, mode } from "../calls";
import { formatAgo, formatBytes, formatDuration, formatNumber } from "../common/format";
import { useAction, useLoad, useWhileSeen } from "../common/load";
import { Bar, Tag } from "../common/ui/bar";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { Field, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Empty, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { session } from "../session";
import { ConnectionLost, Page } from "../shell";
import { t, tCount, tName } from "../text";
import type { Mode } from "../types";
import { StageGraph } from "./stages";

const stateKinds = { running: "good", starting: "busy", down: "bad" } as const;

/** How often what no stream tells is asked for again. */
const LOOK_AGAIN_MS = 5000;

/** The page of the operator. */
export function OperatorPage() {
  const health = useLoad((signal) => call("operator/get", {}, signal), []);
  const processes = useSignal<Process[] | undefined>(undefined);
  const isAway = useSignal(false);
  useWhileSeen((signal) => {
    const onMessage = (pipeline: PipelineOverview) => (processes.value = pipeline.processes);
    const onConnection = (connected: boolean) => (isAway.value = !connected);
    follow("pipeline/get", {}, { signal, onMessage, onConnection }).catch(() => undefined);
  }, []);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden && !health.isLoading.value) health.reload();
    }, LOOK_AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const isGranting = useSignal(false);
  const grant = <Button onClick={() => (isGranting.value = true)}>{t("operator.grant")}</Button>;
  return (
    <Page title={t("nav.operator")} actions={grant}>
      <ConnectionLost isAway={isAway.value} />
      <Loaded load={health} lines={4} height="4rem">
        {(seen) => <Health health={{ ...seen, processes: processes.value ?? seen.processes }} />}
      </Loaded>
      {isGranting.value && <GrantCredits onClose={() => (isGranting.value = false)} />}
    </Page>
  );
}

function Health({ health }: { health: ServiceHealth }) {
  const { queue, components, processes, tasks, version } = health;
  const oldest = queue.oldestSeconds === null ? "–" : formatDuration(queue.oldestSeconds);
  return (
    <>
      <section class="panel" aria-label={t("operator.queue")}>
        <dl class="figures">
          <div>
            <dt>{t("operator.queued")}</dt>
            <dd>{formatNumber(queue.queued)}</dd>
          </div>
          <div>
            <dt>{t("operator.oldest")}</dt>
            <dd>{oldest}</dd>
          </div>
          <div>
            <dt>{t("operator.version")}</dt>
            <dd>{version}</dd>
          </div>
        </dl>
      </section>
      <section class="stack" aria-labelledby="components-title">
        <h2 id="components-title">{t("operator.components")}</h2>
        <Table
          label={t("operator.components")}
          rows={components}
          rowKey={(component) => component.name}
          columns={[
            { name: t("field.name"), cell: (component) => tName("component", component.name) },
            {
              name: t("table.state"),
              cell: ({ state }) => <Tag kind={stateKinds[state]}>{t(`component_state.${state}`)}</Tag>,
            },
            { name: t("operator.detail"), cell: (component) => component.detail ?? "–" },
          ]}
        />
      </section>
      <section class="stack" aria-labelledby="processes-title">
        <h2 id="processes-title">{t("operator.processes")}</h2>
        {processes.length === 0 && <Empty title={t("operator.no_processes")} />}
        {processes.map((process) => (
          <ProcessPanel key={process.id} process={process} />
        ))}
      </section>
      {tasks.length > 0 && <Tasks tasks={tasks} />}
    </>
  );
}

function ProcessPanel({ process }: { process: Process }) {
  const models = Object.entries(process.models).map(([role, name]) => `${role}: ${name}`);
  return (
    <details class="panel">
      <summary>
        <strong>{process.host}</strong> · {process.role} · {process.version} ·{" "}
        {t("operator.since", { when: formatAgo(process.startedAt) })} · {tCount("photos.count", process.photosInFlight)}
      </summary>
      <ul class="stack stack-tight">
        {process.budgets.map((budget) => (
          <li key={budget.name}>
            <p class="small numeric">
              {tName("budget", budget.name)}: {formatBytes(budget.usedBytes)} / {formatBytes(budget.limitBytes)}
            </p>
            <Bar total={budget.limitBytes} parts={[{ kind: "ready", amount: budget.usedBytes }]} />
          </li>
        ))}
      </ul>
      {models.length > 0 && <p class="small quiet">{[process.device, ...models].filter(Boolean).join(" · ")}</p>}
      {process.stages.length > 0 && (
        <StageGraph
          stages={process.stages}
          bottleneck={process.photosInFlight > 0 ? process.bottleneck : null}
          isIdle={process.photosInFlight === 0}
        />
      )}
    </details>
  );
}

function Tasks({ tasks }: Pick<ServiceHealth, "tasks">) {
  return (
    <section class="stack" aria-labelledby="tasks-title">
      <h2 id="tasks-title">{t("operator.tasks")}</h2>
      <Table
        label={t("operator.tasks")}
        rows={tasks}
        rowKey={(task) => task.name}
        columns={[
          { name: t("field.name"), cell: (task) => tName("task", task.name) },
          { name: t("operator.host"), cell: (task) => task.host ?? "–" },
          { name: t("operator.until"), cell: (task) => formatAgo(task.until) },
        ]}
      />
    </section>
  );
}

/** A new id in the form of a UUID. Pages that came without TLS have no `crypto.randomUUID`. */
function createId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function GrantCredits({ onClose }: { onClose: () => void }) {
  // One for all attempts, also with other values: where the answer of the first is lost, the second grants nothing more. Who
  // wants to grant more all the same opens the dialog again.
  const [grantId] = useState(createId);
  const organization = useSignal(session.value?.organization.name ?? "");
  const chosen = useSignal<Mode>(mode.value);
  const credits = useSignal("");
  const note = useSignal("");
  const grant = useAction(async () => {
    const { balance } = await call("operator/credits/grant", {
      organization: organization.value.trim(),
      mode: chosen.value,
      credits: Number(credits.value),
      note: note.value.trim(),
      grantId,
    });
    notify(t("operator.granted", { balance: formatNumber(balance, 2) }));
    onClose();
  });
  return (
    <FormDialog
      title={t("operator.grant")}
      action={t("operator.grant_action")}
      does={grant}
      disabled={!organization.value.trim() || !Number(credits.value)}
      onClose={onClose}
    >
      <Field label={t("operator.organization")} value={organization.value} onInput={(value) => (organization.value = value)} />
      <SelectField
        label={t("mode.label")}
        value={chosen.value}
        options={(session.value?.modes ?? []).map((each) => [each, t(`mode.${each}`)] as const)}
        onChange={(value) => (chosen.value = value as Mode)}
      />
      <Field
        label={t("operator.credits")}
        hint={t("operator.credits_hint")}
        type="number"
        value={credits.value}
        onInput={(value) => (credits.value = value)}
      />
      <Field label={t("operator.note")} maxLength={1000} value={note.value} onInput={(value) => (note.value = value)} />
    </FormDialog>
  );
}
