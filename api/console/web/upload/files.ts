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
  /** Files and folders that could not be read. */
  unreadable: number;
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

/** What files become, and in which folder of the album. */
export interface Intake {
  mediaTypes: readonly string[];
  /** Before every name, as typed: cameras use the same names again. */
  folder: string;
}

/** Finds the photos among picked files. */
export function findPicked(files: File[], intake: Intake): FoundFiles {
  // The first part of the path is the folder itself, which is not part of the names.
  const nameOf = (file: File) => file.webkitRelativePath.split("/").slice(1).join("/") || file.name;
  return sort({ files: files.map((file) => ({ file, name: nameOf(file) })), unreadable: 0 }, intake);
}

/** Finds the photos among what was dropped, in all folders below. Must be called while the event is handled. */
export async function findDropped(transfer: DataTransfer, intake: Intake): Promise<FoundFiles> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const found: Collected = { files: [], unreadable: 0 };
  for (const entry of entries) {
    // A single folder is not part of the names, as when it is picked; several tell their photos apart.
    const prefix = entry.isDirectory && entries.length > 1 ? `${entry.name}/` : "";
    await collect(entry, entry.isDirectory ? prefix : entry.name, found);
  }
  return sort(found, intake);
}

interface Collected {
  files: { name: string; file: File }[];
  unreadable: number;
}

/** Adds a file, or all in a folder. What cannot be read is counted and keeps nothing else back: cards have folders of the system. */
async function collect(entry: FileSystemEntry, name: string, found: Collected): Promise<void> {
  try {
    if (entry.isFile) {
      const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
      found.files.push({ name, file });
      return;
    }
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      // A reader gives at most 100 entries at a time, and none at the end.
      const entries = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (entries.length === 0) return;
      for (const each of entries.filter((each) => !each.name.startsWith("."))) {
        await collect(each, each.isDirectory ? `${name}${each.name}/` : name + each.name, found);
      }
    }
  } catch {
    found.unreadable += 1;
  }
}

function sort({ files, unreadable }: Collected, { mediaTypes, folder }: Intake): FoundFiles {
  const photos: NamedFile[] = [];
  const prefix = folder.split("/").map((part) => part.trim()).filter(Boolean).map((part) => `${part}/`).join("");
  for (const { name, file } of files) {
    const ending = name.split(".").pop()?.toLowerCase() ?? "";
    const contentType = ENDINGS[ending] ?? file.type;
    const isHidden = name.split("/").some((part) => part.startsWith("."));
    if (!isHidden && mediaTypes.includes(contentType)) photos.push({ name: prefix + name, file, contentType });
  }
  photos.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  return { photos, others: files.length - photos.length, unreadable };
}
