/** Tables. On narrow screens each row becomes a block with the names of its columns. */

import type { ComponentChildren } from "preact";

/** A column of a table. */
export interface Column<T> {
  /** Its name; may be empty for buttons. */
  name: string;
  cell: (row: T) => ComponentChildren;
  numeric?: boolean;
}

/** A table of rows. Roles are written out, since as blocks the elements lose their own. */
export function Table<T>(props: { label: string; columns: Column<T>[]; rows: T[]; rowKey: (row: T) => string }) {
  const { label, columns, rows, rowKey } = props;
  return (
    <table class="table" role="table" aria-label={label}>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map((column, index) => (
            <th key={index} role="columnheader" scope="col" class={column.numeric ? "numeric right" : ""}>
              {column.name || <span class="visually-hidden">{label}</span>}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={rowKey(row)} role="row">
            {columns.map((column, index) => (
              <Cell key={index} column={column} row={row} />
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What stands where there is nothing. */
const NOTHING = "–";

function Cell<T>({ column, row }: { column: Column<T>; row: T }) {
  const value = column.cell(row);
  const kinds = [column.numeric ? "numeric right" : "", value === NOTHING ? "cell-nothing" : ""];
  return (
    <td role="cell" class={kinds.filter(Boolean).join(" ")}>
      {column.name && (
        <span class="cell-name" aria-hidden="true">
          {column.name}
        </span>
      )}
      <div class="cell">{value}</div>
    </td>
  );
}
