/** The start list of an album: what it is now, and the import of another one. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";

import type { CheckedList, ImportedList, Operations, StartListChange, StartListSettings } from "../../api";
import { call } from "../../calls";
import { useEdits } from "../../common/edits";
import { formatConfidence, formatNumber, formatTime } from "../../common/format";
import { useAction, useLoad, useReloading } from "../../common/load";
import { link } from "../../common/router";
import { translateIfThere } from "../../common/words";
import { Button } from "../../common/ui/button";
import { CheckField, Field, FileField, SelectField } from "../../common/ui/field";
import { FormDialog } from "../../common/ui/dialog";
import { notify } from "../../common/ui/notice";
import { Failed, Loaded } from "../../common/ui/states";
import { Table } from "../../common/ui/table";
import { t, tCount } from "../../text";
import { More, type Save } from "./form";
import { COLUMNS, type ColumnChoice, type ColumnName, type StartList, pickColumns, readList, readText } from "./csv";

type ListSource = Operations["albums/startlist/import"][0];

interface ChosenFile {
  name: string;
  list: StartList;
  /** Which choice it is: a file that is chosen again after it was changed is another one. */
  choice: number;
}

/** The panel of the start list. */
export function StartListPanel(props: { albumId: string; settings: StartListSettings; save: Save }) {
  const { albumId, settings, save } = props;
  const list = useLoad((signal) => call("albums/startlist/get", { albumId }, signal), [albumId]);
  useReloading(list, ({ left }) => left > 0);
  const file = useSignal<ChosenFile | undefined>(undefined);
  const choices = useRef(0);
  const choose = async ([chosen]: File[]) => {
    if (!chosen) return;
    choices.current += 1;
    const choice = choices.current;
    const list = readList(await readText(chosen));
    // Not where another one was chosen while this one was read.
    if (choice === choices.current) file.value = { name: chosen.name, list, choice };
  };
  return (
    <section class="panel panel-split" aria-labelledby="start-list-title">
      <h2 id="start-list-title">{t("start_list.title")}</h2>
      <p class="quiet">{t("start_list.hint")}</p>
      <Loaded load={list} lines={1}>
        {(now) => (
          <div class="row row-apart">
            <p class="numeric">
              {now.entries > 0 && now.importedAt
                ? t("start_list.now", { count: formatNumber(now.entries), time: formatTime(now.importedAt) })
                : t("start_list.none")}
              {now.left > 0 && ` ${tCount("start_list.judging", now.left)}`}
            </p>
            {now.entries > 0 && <RemoveList albumId={albumId} onDone={list.reload} />}
          </div>
        )}
      </Loaded>
      <div class="row">
        <FileField label={t("start_list.choose")} accept=".csv,.txt,.tsv,text/csv" onFiles={(files) => void choose(files)} />
        {file.value && <code>{file.value.name}</code>}
      </div>
      {file.value && (
        <ImportForm
          key={file.value.choice}
          albumId={albumId}
          file={file.value}
          onImported={(imported) => {
            // Rows that were refused stay in view.
            if (imported.refusedCount === 0) file.value = undefined;
            list.reload();
          }}
        />
      )}
      <More>
        <UseForm settings={settings} save={save} />
      </More>
    </section>
  );
}

/** Whether the list is used, and how strictly. */
function UseForm({ settings, save }: { settings: StartListSettings; save: Save }) {
  // As a percentage, without the digits that fractions have beyond what was set.
  const loaded = { enabled: settings.enabled, percent: String(Number((settings.offListShare * 100).toFixed(4))) };
  const form = useEdits(loaded);
  const action = useAction(() =>
    form.save(({ enabled, percent }) => {
      const change: StartListChange = {};
      if (enabled !== undefined) change.enabled = enabled;
      if (percent !== undefined) change.offListShare = Number(percent) / 100;
      return save({ config: { startList: change } });
    }),
  );
  return (
    <form
      class="form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void action.run();
      }}
    >
      <CheckField
        label={t("start_list.enabled")}
        checked={form.shown.enabled}
        onChange={(enabled) => form.set({ enabled })}
      />
      <Field
        label={t("start_list.off_list")}
        hint={t("start_list.off_list_hint")}
        type="number"
        inputMode="decimal"
        min={0}
        max={100}
        step="any"
        value={form.shown.percent}
        onInput={(percent) => form.set({ percent })}
      />
      <Failed failure={action.failure.value} />
      <div class="row">
        <Button type="submit" busy={action.isBusy.value}>
          {t("ui.save")}
        </Button>
      </div>
    </form>
  );
}

function RemoveList({ albumId, onDone }: { albumId: string; onDone: () => void }) {
  const isAsking = useSignal(false);
  const remove = useAction(async () => {
    await call("albums/startlist/delete", { albumId });
    isAsking.value = false;
    onDone();
  });
  return (
    <>
      <Button kind="danger" onClick={() => (isAsking.value = true)}>
        {t("start_list.remove")}
      </Button>
      {isAsking.value && (
        <FormDialog
          title={t("start_list.remove")}
          action={t("start_list.remove")}
          kind="danger"
          does={remove}
          onClose={() => (isAsking.value = false)}
        >
          <p>{t("start_list.remove_text")}</p>
        </FormDialog>
      )}
    </>
  );
}

type ImportProps = { albumId: string; file: ChosenFile; onImported: (imported: ImportedList) => void };

function ImportForm({ albumId, file, onImported }: ImportProps) {
  const columns = useSignal<ColumnChoice>({});
  const mode = useSignal<"replace" | "merge">("replace");
  const checked = useSignal<CheckedList | undefined>(undefined);
  const imported = useSignal<ImportedList | undefined>(undefined);
  const picked = pickColumns(file.list, columns.value);
  const source = (): ListSource => ({ albumId, csv: picked.csv, mode: mode.value, columns: columns.value });
  const check = useAction(async () => {
    checked.value = await call("albums/startlist/check", source());
  });
  const importList = useAction(async () => {
    imported.value = await call("albums/startlist/import", source());
    notify(tCount("start_list.imported", imported.value.entries));
    onImported(imported.value);
  });
  return (
    <div class="stack">
      <ColumnFields
        header={file.list.header}
        columns={columns.value}
        onChange={(chosen) => {
          columns.value = chosen;
          checked.value = undefined;
        }}
      />
      {picked.left.length > 0 && <p class="quiet">{t("start_list.left_out", { names: picked.left.join(", ") })}</p>}
      <SelectField
        label={t("start_list.mode")}
        value={mode.value}
        options={[
          ["replace", t("start_list.replace")],
          ["merge", t("start_list.merge")],
        ]}
        onChange={(chosen) => {
          mode.value = chosen as "replace" | "merge";
          checked.value = undefined;
        }}
      />
      <div class="row">
        <Button busy={check.isBusy.value} onClick={() => void check.run()}>
          {t("start_list.check")}
        </Button>
        <Button kind="main" busy={importList.isBusy.value} onClick={() => void importList.run()}>
          {t("start_list.import")}
        </Button>
      </div>
      <Failed failure={check.failure.value ?? importList.failure.value} />
      {checked.value && <Checked albumId={albumId} checked={checked.value} />}
      {imported.value && imported.value.refusedCount > 0 && <RefusedRows imported={imported.value} />}
    </div>
  );
}

/** Which column has what. Without a choice the service goes by the names. */
function ColumnFields(props: { header: string[]; columns: ColumnChoice; onChange: (columns: ColumnChoice) => void }) {
  const { header, columns, onChange } = props;
  const choose = (name: ColumnName, value: string) => {
    const { [name]: _, ...others } = columns;
    onChange(value ? { ...others, [name]: value } : others);
  };
  return (
    <fieldset class="stack stack-tight">
      <legend>{t("start_list.columns")}</legend>
      <div class="columns">
        {COLUMNS.map((name) => (
          <SelectField
            key={name}
            label={t(`start_list.column_${name}`)}
            value={columns[name] ?? ""}
            options={[["", t("start_list.guess")], ...header.filter(Boolean).map((each) => [each, each] as const)]}
            onChange={(value) => choose(name, value)}
          />
        ))}
      </div>
    </fieldset>
  );
}

function Checked({ albumId, checked }: { albumId: string; checked: CheckedList }) {
  return (
    <section class="stack" aria-live="polite">
      <h3>{t("start_list.checked")}</h3>
      <dl class="figures">
        <div>
          <dt>{t("start_list.indexed_now")}</dt>
          <dd>{formatNumber(checked.indexedNow)}</dd>
        </div>
        <div>
          <dt>{t("start_list.indexed_then")}</dt>
          <dd>{formatNumber(checked.indexedThen)}</dd>
        </div>
        <div>
          <dt>{t("start_list.changed")}</dt>
          <dd>{formatNumber(checked.changed)}</dd>
        </div>
        <div>
          <dt>{t("start_list.refused_rows")}</dt>
          <dd>{formatNumber(checked.refusedCount)}</dd>
        </div>
      </dl>
      {checked.warnings.map((warning) => (
        <p key={warning.code + warning.message} class="away">
          {describeProblem(warning)}
        </p>
      ))}
      {checked.examples.length > 0 && (
        <Table
          label={t("start_list.examples")}
          rows={checked.examples.slice(0, 10)}
          rowKey={(example) => example.photoId + example.before}
          columns={[
            {
              name: t("start_list.before"),
              cell: (example) => <a href={link(`/albums/${albumId}/photos/${example.photoId}`)}>{example.before}</a>,
            },
            { name: t("start_list.after"), cell: (example) => example.after ?? t("start_list.not_found") },
            { name: t("table.confidence"), numeric: true, cell: (example) => formatConfidence(example.confidence) },
          ]}
        />
      )}
    </section>
  );
}

/** What is wrong, in the visitor's language where its code has words; codes may be added. */
function describeProblem({ code, message }: { code: string; message: string }): string {
  return translateIfThere(`list_problem.${code}`) ?? message;
}

function RefusedRows({ imported }: { imported: ImportedList }) {
  return (
    <details open>
      <summary>{tCount("start_list.refused", imported.refusedCount)}</summary>
      <ul class="small">
        {imported.refused.map((row) => (
          <li key={row.line}>{t("start_list.refused_row", { line: row.line, message: describeProblem(row) })}</li>
        ))}
      </ul>
    </details>
  );
}
