/** What the operations of the console take and give. Only the fields that it uses. */

export type { Operations } from "./operations";

export type PhotoState = "awaiting_upload" | "queued" | "processing" | "ready" | "failed";
export type Mode = "test" | "live";
export type Role = "owner" | "organizer" | "viewer";
export type Scope = "search:read" | "photo:upload" | "album:manage";

export interface RecognitionSettings {
  confidenceThreshold: number;
  enabled: boolean;
  grid: Grid | null;
  mode: "photo" | "grid";
}
export interface Grid {
  rows: number;
  columns: number;
  cellWidth: number;
  cellHeight: number;
}
export interface AlbumConfig {
  face: RecognitionSettings;
  text: RecognitionSettings;
  preview: { maxDimension: number };
  thumbnail: { maxDimension: number };
  retention: { facesDays: number | null; photosDays: number | null };
  startList: { enabled: boolean; offListShare: number };
  bibFormat: string;
  bibPattern: string;
}
export interface Album {
  id: string;
  title: string;
  coverUrl: string | null;
  tags: string[];
  config: AlbumConfig | null;
  createdAt: string;
  updatedAt: string;
}
export interface AlbumDetail extends Album {
  bibFormat: { learned: string | null; readings: number; share: number };
  expiring: { what: "faces" | "photos"; at: string }[];
}
export interface ConfigChange {
  face?: Partial<RecognitionSettings>;
  text?: Partial<RecognitionSettings>;
  preview?: { maxDimension: number };
  thumbnail?: { maxDimension: number };
  retention?: Partial<AlbumConfig["retention"]>;
  startList?: Partial<AlbumConfig["startList"]>;
  bibFormat?: string;
}
export interface Progress {
  albumId: string;
  total: number;
  awaitingUpload: number;
  queued: number;
  processing: number;
  ready: number;
  failed: number;
  photosPerSecond: number | null;
  secondsLeft: number | null;
  bottleneck: string | null;
}
export interface BoundingBox {
  top: number;
  left: number;
  width: number;
  height: number;
}
export interface Photo {
  id: string;
  albumId: string;
  filename: string;
  state: PhotoState;
  failure: string | null;
  takenAt: string | null;
  camera: string | null;
  width: number | null;
  height: number | null;
  url: string | null;
  thumbnailUrl: string | null;
  createdAt: string;
  skippedRunners: number;
}
export interface SeenFace {
  boundingBox: BoundingBox;
  confidence: number;
  indexed: boolean;
  reason: string | null;
}
export interface SeenText extends SeenFace {
  text: string;
  readAs: string | null;
  onStartList: boolean | null;
  alternatives: { text: string; confidence: number }[];
}
export interface PhotoDetail extends Photo {
  faces: SeenFace[];
  texts: SeenText[];
}
export interface Hit {
  id: string;
  url: string;
  thumbnailUrl: string;
  confidence: number;
  boundingBox: BoundingBox;
  takenAt: string | null;
  why: string;
  matchedText?: string;
  onStartList?: boolean | null;
  team?: string | null;
  wave?: string | null;
}
export interface Hits {
  photos: Hit[];
  nextCursor: string | null;
  total: number;
}
export interface EntryError {
  code: string;
  status: number;
  message: string;
}
export interface TicketResult {
  filename: string;
  success: boolean;
  photoId?: string;
  uploadUrl?: string;
  expiresAt?: string;
  error?: EntryError;
}
export interface Confirmation {
  photoId: string;
  success: boolean;
  error?: EntryError;
}
export interface StoreScan {
  store: string;
  looked: number;
  left: number;
}
export interface Erasure {
  receiptId: string;
  albumId: string;
  state: string;
  askedAt: string;
  issuedAt: string | null;
  subject: { kind: string };
  removed: { faces: number; vectors: number; texts: number; photos: number; probes: number; objects: number; bytes: number };
  kept: { what: string; why: string }[];
  scan: { finishedAt: string; left: number; stores: StoreScan[] } | null;
  backups: { until: string | null } | null;
  jws: string | null;
}
export interface ErasureAnswer {
  dryRun: boolean;
  preview: { confirm: string; faces: number; texts: number; probes: number; photoIds: string[]; deletedPhotoIds: string[] } | null;
  receipt: Erasure | null;
}
export interface Stage {
  name: string;
  depth: number;
  photosPerSecond: number;
  busy: number;
  blocked: number;
}
export interface Process {
  id: string;
  role: string;
  host: string;
  version: string;
  startedAt: string;
  photosInFlight: number;
  bottleneck: string | null;
  stages: Stage[];
  budgets: { name: string; usedBytes: number; limitBytes: number }[];
  models: Record<string, string>;
  device: string | null;
}
export interface Pipeline {
  processes: Process[];
  stages: Stage[];
  bottleneck: string | null;
}
export interface ServiceHealth {
  components: { name: string; state: "starting" | "running" | "down"; detail: string | null }[];
  processes: Process[];
  tasks: { name: string; host: string | null; until: string }[];
  queue: { queued: number; processing?: number; oldestSeconds: number | null };
  version: string;
}
export interface Account {
  id: string;
  email: string;
  name: string;
  role: Role;
  operator: boolean;
  language: string | null;
  disabled: boolean;
  invited: boolean;
  createdAt: string;
  lastSeenAt: string | null;
}
export interface Session {
  account: Account;
  organization: { id: string; name: string };
  session: { id: string; createdAt: string; expiresAt: string };
  environment: "local" | "sandbox" | "production";
  modes: Mode[];
  version: string;
  mediaTypes: string[];
  maxPhotoBytes: number;
}
export interface InvitedAccount {
  account: Account;
  link: string;
  expiresAt: string;
}
export interface Key {
  id: string;
  label: string;
  mode: Mode;
  hint: string;
  scopes: Scope[];
  createdAt: string;
  lastUsedAt: string | null;
  expiresAt: string | null;
  revokedAt: string | null;
}
export interface Webhook {
  id: string;
  label: string;
  url: string;
  types: string[];
  albumId: string | null;
  enabled: boolean;
  disabledReason: string | null;
  pending: number;
  createdAt: string;
  lastSuccessAt: string | null;
  lastFailureAt: string | null;
}
export interface Delivery {
  id: string;
  type: string;
  state: string;
  attempts: number;
  createdAt: string;
  deliveredAt: string | null;
  nextAttemptAt: string | null;
  lastStatus: number | null;
  lastError: string | null;
}
export interface DeliveryDetail extends Delivery {
  body: unknown;
  history: { at: string; status: number | null; error: string | null; answer: string; durationMs: number }[];
}
export interface ActivityEvent {
  id: string;
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}
export interface Gallery {
  albumId: string;
  enabled: boolean;
  url: string | null;
  qrUrl: string | null;
  bibSearch: boolean;
  selfieSearch: boolean;
  browse: boolean;
  downloads: "none" | "preview" | "original";
  watermark: boolean;
  removal: "request" | "immediate";
  expiresAt: string | null;
  searchesPerVisitor: number;
  contact: string | null;
  privacyUrl: string | null;
  intro: string | null;
  opened: number;
  searches: number;
}
export type WatermarkPosition = "tile" | "center" | "topLeft" | "topRight" | "bottomLeft" | "bottomRight";
export interface WatermarkSettings {
  position: WatermarkPosition;
  opacity: number;
  scale: number;
}
export interface Watermark {
  albumId: string;
  watermark: WatermarkSettings | null;
  photosMarked: number;
  photosLeft: number;
  sampleUrl: string | null;
}
export interface PhotoFilter {
  state?: PhotoState;
  camera?: string;
  takenFrom?: string;
  takenUntil?: string;
}
export interface Costs {
  cpuSeconds: number;
  deviceSeconds: number;
  bytesRead: number;
  bytesWritten: number;
  money: number | null;
}
export interface CostRow extends Costs {
  stage?: string;
  day?: string;
  albumId?: string;
  photos: number;
}
export interface DearPhoto extends Costs {
  photoId: string;
  filename: string;
  thumbnailUrl: string | null;
}
export interface Stored {
  objects: number;
  bytes: number;
  money: number | null;
}
export interface StartListSummary {
  version: number;
  entries: number;
  importedAt: string | null;
  judged: number;
  left: number;
  waves: { wave: string | null; entries: number }[];
}
export interface CheckedList {
  photos: number;
  indexedNow: number;
  indexedThen: number;
  changed: number;
  refusedCount: number;
  examples: { photoId: string; before: string; after: string | null; confidence: number }[];
  warnings: { code: string; message: string }[];
}
export interface ImportedList {
  entries: number;
  added: number;
  removed: number;
  refusedCount: number;
  refused: { line: number; code: string; message: string }[];
  judging: { photos: number };
}
export interface UsageRow {
  day?: string;
  operation?: string;
  albumId?: string;
  count: number;
  credits: number;
}

export type Done = { message: string };
export type InAlbum = { albumId: string };
export type OfReport = InAlbum & { reportId: string };
export interface Report {
  id: string;
  photoId: string;
  faces: BoundingBox[];
  kind: string;
  note: string;
  createdAt: string;
}
export type OnePhoto = { albumId: string; photoId: string };
export type Paged = { cursor?: string; limit?: number };
export type SearchPage = InAlbum & Paged & { minConfidence?: number };
export type ListSource = InAlbum & {
  csv: string;
  mode?: "replace" | "merge";
  columns?: { bib?: string; wave?: string; team?: string; startAt?: string };
};

/** Each operation: what it takes, then what it gives. */
