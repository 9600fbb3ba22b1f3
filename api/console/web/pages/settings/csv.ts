/** As much of CSV as the choice of columns needs; the service reads the file itself. */

/** The names of the columns in the first line. */
export function readHeader(text: string): string[] {
  const line = firstLine(text.replace(/^\uFEFF/, "").trimStart());
  const delimiter = [",", ";", "\t"].toSorted((a, b) => split(line, b).length - split(line, a).length)[0] ?? ",";
  return split(line, delimiter).map((name) => name.trim());
}

function firstLine(text: string): string {
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') isQuoted = !isQuoted;
    if (!isQuoted && (character === "\n" || character === "\r")) return text.slice(0, at);
  }
  return text;
}

function split(line: string, delimiter: string): string[] {
  const fields: string[] = [];
  let field = "";
  let isQuoted = false;
  for (const character of line) {
    if (character === '"') isQuoted = !isQuoted;
    else if (character === delimiter && !isQuoted) {
      fields.push(field);
      field = "";
    } else field += character;
  }
  fields.push(field);
  return fields;
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
