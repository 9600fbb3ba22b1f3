/** The photos among files that were dropped or picked, folders included. */

/** A file under the name it will have in the album: its path below the folder. */
export interface NamedFile {
  name: string;
  file: File;
  contentType: string;
}

/** What was found. */
export interface FoundFiles {
  photos: NamedFile[];
  /** Files that are no photos. */
  others: number;
}

const ENDINGS: Record<string, string> = {
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  png: "image/png",
  webp: "image/webp",
  heic: "image/heic",
  heif: "image/heif",
  avif: "image/avif",
};

/** Finds the photos among picked files. */
export function findPicked(files: File[], mediaTypes: readonly string[]): FoundFiles {
  return sort(
    // The first part of the path is the folder itself, which is not part of the names.
    files.map((file) => ({ file, name: file.webkitRelativePath.split("/").slice(1).join("/") || file.name })),
    mediaTypes,
  );
}

/** Finds the photos among what was dropped, in all folders below. Must be called while the event is handled. */
export async function findDropped(transfer: DataTransfer, mediaTypes: readonly string[]): Promise<FoundFiles> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const found: { name: string; file: File }[] = [];
  for (const entry of entries) {
    // A single folder is not part of the names, as when it is picked; several tell their photos apart.
    const prefix = entry.isDirectory && entries.length > 1 ? `${entry.name}/` : "";
    await collect(entry, entry.isDirectory ? prefix : entry.name, found);
  }
  return sort(found, mediaTypes);
}

async function collect(entry: FileSystemEntry, name: string, found: { name: string; file: File }[]): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    found.push({ name, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    // A reader gives at most 100 entries at a time, and none at the end.
    const entries = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (entries.length === 0) return;
    for (const each of entries) {
      await collect(each, each.isDirectory ? `${name}${each.name}/` : name + each.name, found);
    }
  }
}

function sort(files: { name: string; file: File }[], mediaTypes: readonly string[]): FoundFiles {
  const photos: NamedFile[] = [];
  for (const { name, file } of files) {
    const ending = name.split(".").pop()?.toLowerCase() ?? "";
    const contentType = ENDINGS[ending] ?? file.type;
    const isHidden = name.split("/").some((part) => part.startsWith("."));
    if (!isHidden && mediaTypes.includes(contentType)) photos.push({ name, file, contentType });
  }
  photos.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  return { photos, others: files.length - photos.length };
}
