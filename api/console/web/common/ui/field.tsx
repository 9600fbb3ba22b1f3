/** Fields of forms: each with its label, what helps to fill it, and what is wrong with it. */

import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

interface Described {
  label: string;
  hint?: ComponentChildren;
  error?: string | undefined;
}

type InputProps = Described & Omit<JSX.IntrinsicElements["input"], "label" | "onInput" | "list" | "value"> & {
  value: string;
  onInput: (value: string) => void;
};

/** A field of one line. */
export function Field({ label, hint, error, onInput, ...rest }: InputProps) {
  const id = useId();
  // The types of an input differ by its `type`, which is only known to the caller.
  const attributes = { ...rest, ...describe(id, hint, error) } as JSX.IntrinsicElements["input"];
  return (
    <Labelled id={id} label={label} hint={hint} error={error}>
      <input {...attributes} class="input" onInput={(event) => onInput(event.currentTarget.value)} />
    </Labelled>
  );
}

type AreaProps = Described & { value: string; rows?: number; maxLength?: number; onInput: (value: string) => void };

/** A field of several lines. */
export function AreaField({ label, hint, error, onInput, rows = 3, ...rest }: AreaProps) {
  const id = useId();
  return (
    <Labelled id={id} label={label} hint={hint} error={error}>
      <textarea
        {...rest}
        {...describe(id, hint, error)}
        rows={rows}
        class="input"
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </Labelled>
  );
}

type SelectProps = Described & {
  value: string;
  options: readonly (readonly [value: string, label: string])[];
  onChange: (value: string) => void;
};

/** A choice of one among several. */
export function SelectField({ label, hint, error, value, options, onChange }: SelectProps) {
  const id = useId();
  return (
    <Labelled id={id} label={label} hint={hint} error={error}>
      <select
        {...describe(id, hint, error)}
        class="input"
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
      >
        {options.map(([name, words]) => (
          <option key={name} value={name} selected={name === value}>
            {words}
          </option>
        ))}
      </select>
    </Labelled>
  );
}

type CheckProps = Described & { checked: boolean; disabled?: boolean; onChange: (checked: boolean) => void };

/** A choice of yes or no. */
export function CheckField({ label, hint, error, checked, disabled, onChange }: CheckProps) {
  const id = useId();
  return (
    <div class="check">
      <input
        {...describe(id, hint, error)}
        type="checkbox"
        checked={checked}
        disabled={disabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <label for={id}>{label}</label>
      <Notes id={id} hint={hint} error={error} />
    </div>
  );
}

/** A button that asks for files. */
export function FileField(props: Described & {
  accept: string;
  multiple?: boolean;
  folder?: boolean;
  kind?: "main" | "plain";
  onFiles: (files: File[]) => void;
}) {
  const { label, hint, error, accept, multiple, folder, kind = "plain", onFiles } = props;
  const id = useId();
  // No attribute of the standard, but known to every browser.
  const folderAttribute = folder ? { webkitdirectory: true } : {};
  return (
    <span class="file">
      <input
        {...describe(id, hint, error)}
        {...folderAttribute}
        type="file"
        class="visually-hidden"
        accept={accept}
        multiple={multiple}
        onChange={(event) => {
          onFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
      <label class={`button button-${kind}`} for={id}>
        {label}
      </label>
      <Notes id={id} hint={hint} error={error} />
    </span>
  );
}

function describe(id: string, hint: ComponentChildren, error: string | undefined) {
  const notes = [hint ? `${id}-hint` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ");
  return { id, "aria-describedby": notes || undefined, "aria-invalid": error ? true : undefined };
}

function Labelled({ id, label, hint, error, children }: Described & { id: string; children: ComponentChildren }) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      <Notes id={id} hint={hint} error={error} />
    </div>
  );
}

function Notes({ id, hint, error }: { id: string; hint?: ComponentChildren; error?: string | undefined }) {
  return (
    <>
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="error" id={`${id}-error`}>
          {error}
        </p>
      )}
    </>
  );
}
