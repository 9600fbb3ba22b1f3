/** As much of CSV as the choice of columns needs: only those that are mapped leave the browser. The service reads them itself. */

/** What a start list has for the service. */
export const COLUMNS = ["bib", "wave", "team", "startAt"] as const;
export type ColumnName = (typeof COLUMNS)[number];
/** Which column of the file has what; those that are not named are guessed. */
export type ColumnChoice = Partial<Record<ColumnName, string>>;

/** The names by which the service guesses columns, simplified, those first that win; a test there compares them. */
const GUESSES: Record<ColumnName, string> = {
  bib:
    "bib bibnumber bibno startnummer startnr startnumber racenumber raceno dossard numerodossard dorsal pettorale rugnummer " +
    "numero nr no number num",
  wave: "wave startwave block startblock corral welle vague sas oleada griglia",
  team: "team teamname club verein mannschaft equipe equipo squadra",
  startAt: "startat starttime startzeit start heuredepart horasalida",
};

interface Row {
  /** The line on which it begins, from 1. */
  line: number;
  fields: string[];
}

/** A file of rows. */
export interface StartList {
  header: string[];
  rows: Row[];
  /** The line of a quote that is not closed; the rows from there on are missing. */
  unclosed?: number | undefined;
}

/** What is sent of a start list, and the names of the columns that are not. */
export interface PickedColumns {
  csv: string;
  left: string[];
}

/** Reads a start list. */
export function readList(text: string): StartList {
  // Old spreadsheets end lines with CR alone.
  const { rows, unclosed } = readRows(text.replace(/^\uFEFF/, "").replace(/\r\n?/g, "\n"));
  return { header: (rows[0]?.fields ?? []).map((name) => name.trim()), rows, unclosed };
}

/** Picks the columns that the service needs, each row on the line on which it is in the file. */
export function pickColumns({ header, rows, unclosed }: StartList, choice: ColumnChoice): PickedColumns {
  const mapped = new Set(COLUMNS.map((column) => findColumn(header, column, choice)));
  // A list of bibs and nothing else has no header.
  const kept = header.length === 1 && /\d/.test(header[0] ?? "") ? [0] : header.flatMap((_, at) => (mapped.has(at) ? [at] : []));
  let [csv, line] = ["", 1];
  for (const row of rows) {
    csv += "\n".repeat(Math.max(0, row.line - line));
    const text = kept.map((at) => quote(row.fields[at] ?? "")).join(",");
    csv += `${text}\n`;
    line = Math.max(line, row.line) + text.split("\n").length;
  }
  // The service finds the same quote on the same line and says so.
  if (unclosed !== undefined) csv += `${"\n".repeat(Math.max(0, unclosed - line))}"`;
  return { csv, left: header.filter((name, at) => name && !kept.includes(at)) };
}

/** Where a column is: the first one with its name, or with the first guess that any has; -1 where none is. */
function findColumn(header: string[], column: ColumnName, choice: ColumnChoice): number {
  const chosen = choice[column];
  const names = chosen ? [simplify(chosen)] : GUESSES[column].split(" ");
  const found = names.map((name) => header.findIndex((each) => simplify(each) === name));
  return found.find((at) => at >= 0) ?? -1;
}

function simplify(name: string): string {
  return name
    .toLowerCase()
    .replace(/[éèê]/g, "e")
    .replace(/ú/g, "u")
    .replace(/[^\p{L}\p{N}]/gu, "");
}

function quote(field: string): string {
  return `"${field.replaceAll('"', '""')}"`;
}

/** The character that separates most fields of the first line; of those that are equally frequent the first. */
function findDelimiter(text: string): string {
  const line = firstLine(text.trimStart()).replace(/"[^"]*"/g, "");
  return [",", ";", "\t"].toSorted((a, b) => line.split(b).length - line.split(a).length)[0] ?? ",";
}

function firstLine(text: string): string {
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') isQuoted = !isQuoted;
    if (!isQuoted && character === "\n") return text.slice(0, at);
  }
  return text;
}

/** Splits a text into rows that have anything in them, as the service does, up to a quote that is not closed. */
function readRows(text: string): { rows: Row[]; unclosed?: number } {
  const delimiter = findDelimiter(text);
  const rows: Row[] = [];
  let fields: string[] = [];
  let [field, line, begun, opened, isQuoted] = ["", 1, 1, 1, false];
  const end = () => {
    fields.push(field);
    if (fields.some((each) => each.trim())) rows.push({ line: begun, fields });
    [fields, field, begun] = [[], "", line];
  };
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at] ?? "";
    if (character === "\n") line += 1;
    if (character === '"' && isQuoted && text[at + 1] === '"') {
      at += 1;
      field += '"';
    } else if (character === '"' && isQuoted) {
      const next = text[at + 1] ?? delimiter;
      // Taken for the end of a field that a quote lines above began: rows in between would be missing.
      if (line > opened && next !== delimiter && next.trim()) return { rows, unclosed: opened };
      isQuoted = false;
    } else if (character === '"' && !field.trim()) [field, isQuoted, opened] = ["", true, line];
    else if (isQuoted) field += character;
    else if (character === delimiter) {
      fields.push(field);
      field = "";
    } else if (character === "\n") end();
    else field += character;
  }
  if (isQuoted) return { rows, unclosed: opened };
  end();
  return { rows };
}

/** Reads a file of text: UTF-8, or Windows-1252 where it is none, as older timing software writes it. */
export async function readText(file: File): Promise<string> {
  const bytes = await file.arrayBuffer();
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}
