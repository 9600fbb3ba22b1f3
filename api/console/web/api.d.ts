/** What the operations of the service take and give, by their schemas. Generated; see `photofinish_api::typescript_types`. */

export interface AcceptInvitation {
  name?: string;
  password?: string;
  token: string;
}

/** An account of a person. */
export interface Account {
  createdAt: string;
  disabled: boolean;
  email: string;
  id: string;
  invited: boolean;
  language: string | null;
  lastSeenAt: string | null;
  name: string;
  operator: boolean;
  role: "owner" | "organizer" | "viewer";
}

/** The accounts of the organization, oldest first. */
export interface AccountPage {
  accounts: Account[];
  nextCursor: string | null;
  total: number;
}

/** Confirms that an operation succeeded. */
export interface Acknowledgement {
  message: string;
  success: boolean;
}

export interface AgreeToSelfie {
  consent: boolean;
  consentVersion: number;
  language: string;
}

/** An album: the photos of one event. */
export interface Album {
  config: AlbumConfig | null;
  coverUrl: string | null;
  createdAt: string;
  createdBy: string;
  id: string;
  organizationId: string;
  tags: string[];
  title: string;
  updatedAt: string;
}

/** How the photos of an album are processed and searched. */
export interface AlbumConfig {
  bibFormat: string;
  bibPattern: string;
  face: RecognitionSettings;
  preview: ImageSettings;
  retention: RetentionSettings;
  startList: StartListSettings;
  text: RecognitionSettings;
  thumbnail: ImageSettings;
}

export interface AlbumConfigChange {
  bibFormat?: string;
  bibPattern?: string;
  face?: RecognitionChange;
  preview?: PreviewChange;
  retention?: RetentionChange;
  startList?: StartListChange;
  text?: RecognitionChange;
  thumbnail?: ImageChange;
}

/** An album with the format of its bibs. */
export type AlbumDetail = Album & { bibFormat: ShownFormat; expiring: ExpiringPart[] };

/** A page of albums, newest first. */
export interface AlbumPage {
  albums: Album[];
  nextCursor: string | null;
  total: number;
}

/** What a text may be. */
export interface AlternativeText {
  confidence: number;
  text: string;
}

/** One attempt to deliver. */
export interface Attempt {
  answer: string;
  at: string;
  durationMs: number;
  error: string | null;
  status: number | null;
}

/** Backups, which the service cannot erase. */
export interface Backups {
  until: string | null;
}

/** An erasure that was asked for. */
export type BegunErasure = Erasure & { dryRun: boolean };

export interface BibRange {
  from: string;
  team?: string;
  to: string;
  wave?: string;
}

/** A rectangle in fractions (0 to 1) of the upright photo. */
export interface BoundingBox {
  height: number;
  left: number;
  top: number;
  width: number;
}

export interface BrowseGallery {
  cursor?: string;
}

/** A memory budget. */
export interface Budget {
  limitBytes: number;
  name: string;
  usedBytes: number;
}

/** A camera. */
export interface CameraCount {
  camera: string | null;
  photos: number;
}

/** The cameras of an album, at most 1,000. */
export interface Cameras {
  cameras: CameraCount[];
}

/** A text that an import would change. */
export interface ChangedText {
  after: string | null;
  before: string;
  confidence: number;
  photoId: string;
}

/** What an import would change. */
export interface CheckedList {
  changed: number;
  examples: ChangedText[];
  indexedNow: number;
  indexedThen: number;
  photos: number;
  refusedCount: number;
  warnings: ListWarning[];
}

/** A component of the process that answers. */
export interface Component {
  detail: string | null;
  name: string;
  state: "starting" | "running" | "down";
}

export interface ConfirmPhotos {
  albumId: string;
  photoIds: string[];
}

/** The result of confirming one photo. */
export interface Confirmation {
  error?: EntryError;
  message?: string;
  photoId: string;
  success: boolean;
}

/** The results, in the order of the request. */
export interface Confirmations {
  results: Confirmation[];
}

/** What processing photos has cost. */
export interface CostReport {
  mode: string;
  perPhoto: Costs | null;
  photos: number;
  rows: CostRow[];
  storage: StorageReport;
}

/** What something cost. */
export type CostRow = Costs & { albumId?: string; day?: string; photos: number; stage?: string };

/** What was spent. */
export interface Costs {
  bytesRead: number;
  bytesWritten: number;
  cpuSeconds: number;
  gpuSeconds: number;
  money: number | null;
}

export interface CreateAlbum {
  config?: AlbumConfigChange;
  coverUrl?: string;
  tags?: string[];
  title: string;
}

export interface CreateDownload {
  albumId: string;
  bib?: string;
  imageId?: string;
  photoIds?: string[];
  size?: "preview" | "marked" | "original";
}

export interface CreateGalleryDownload {
  imageId?: string;
  photoIds?: string[];
  text?: string;
}

export interface CreateKey {
  expiresInDays?: number;
  label?: string;
  limits?: KeyLimits;
  mode: "test" | "live";
  scopes: ("search:read" | "photo:upload" | "album:manage")[];
}

export interface CreateSession {
  email: string;
  password: string;
}

export interface CreateWebhook {
  albumId?: string;
  label?: string;
  types?: ("photo.ready" | "photo.failed" | "album.idle" | "album.deleted" | "credits.low" | "person.erased" | "album.expiring")[];
  url: string;
}

/** A new key, which is shown this once. */
export type CreatedKey = Key & { key: string };

/** A webhook with its secret, which is shown this once. */
export type CreatedWebhook = Webhook & { secret: string };

/** What things cost, in credits. */
export interface CreditPrices {
  download: number;
  faceSearch: number;
  photo: number;
  textSearch: number;
}

/** What an organization has. */
export interface CreditReport {
  balance: number;
  granted: number;
  held: number;
  mode: string;
  prices: CreditPrices;
  spent: number;
  unlimited: boolean;
}

/** A photo and what it has cost. */
export type DearPhoto = Costs & { filename: string; photoId: string; thumbnailUrl: string | null };

/** The dearest photos of an album. */
export interface DearestPhotos {
  looked: number;
  photos: DearPhoto[];
  total: number;
}

/** What a deletion answers. */
export interface Deletion {
  message: string;
  receipt: Erasure;
  success: boolean;
}

/** The delivery of one event to one webhook. */
export interface Delivery {
  attempts: number;
  createdAt: string;
  deliveredAt: string | null;
  eventId: string;
  id: string;
  lastError: string | null;
  lastStatus: number | null;
  nextAttemptAt: string | null;
  state: string;
  type: string;
}

/** A delivery with its body and attempts. */
export type DeliveryDetail = Delivery & { body: Record<string, unknown> | null; history: Attempt[] };

/** A page of deliveries, newest first. */
export interface DeliveryPage {
  deliveries: Delivery[];
  nextCursor: string | null;
  total: number;
}

/** Where photos can be downloaded as a ZIP file. */
export interface DownloadTicket {
  bytes: number;
  expiresAt: string;
  files: number;
  url: string;
}

export interface EndSession {
  sessionId: string;
}

/** A bib on a start list. */
export interface Entry {
  bib: string;
  startAt: string | null;
  team: string | null;
  wave: string | null;
}

/** Why one entry of a batch failed. */
export interface EntryError {
  code: string;
  data?: Record<string, unknown>;
  message: string;
  status: number;
}

export interface EraseFaces {
  albumId: string;
  confirm?: string;
  dryRun?: boolean;
  imageId: string;
  minConfidence?: number;
  photos?: "keep" | "delete";
}

export interface ErasePerson {
  albumId: string;
  bib: string;
  confirm?: string;
  dryRun?: boolean;
  faces?: boolean;
  photos?: "keep" | "delete";
}

export interface EraseReported {
  albumId: string;
  confirm?: string;
  dryRun?: boolean;
  photos?: "keep" | "delete";
  reportId: string;
}

/** An erasure, and its receipt once it is done. */
export interface Erasure {
  albumId: string;
  askedAt: string;
  backups: Backups | null;
  issuedAt: string | null;
  jws: string | null;
  kept: KeptThing[];
  organizationId: string;
  receiptId: string;
  removed: RemovedCounts;
  scan: Scan | null;
  state: string;
  subject: Subject;
}

/** The answer to a request to erase: with `dryRun` what would go, else the erasure. */
export type ErasureAnswer = Preview | BegunErasure;

/** Erasures, newest first. */
export interface ErasurePage {
  erasures: Erasure[];
  nextCursor: string | null;
  total: number;
}

/** Something that happened. */
export interface Event {
  data: Record<string, unknown>;
  id: string;
  timestamp: string;
  type: string;
}

/** A page of events, oldest first. */
export interface EventPage {
  events: Event[];
  nextCursor: string;
}

/** A part of an album that is going to be erased because of its age. */
export interface ExpiringPart {
  at: string;
  what: "faces" | "photos";
}

/** A photo in which the face was found. */
export interface FaceHit {
  boundingBox: BoundingBox;
  confidence: number;
  id: string;
  takenAt: string | null;
  thumbnailUrl: string;
  url: string;
  why: string;
}

/** Photos in which the face was found, best match first, one hit per photo. */
export interface FaceHits {
  nextCursor: string | null;
  photos: FaceHit[];
  total: number;
}

/** The public page of an album. */
export interface Gallery {
  albumId: string;
  bibSearch: boolean;
  browse: boolean;
  contact: string | null;
  downloads: "none" | "preview" | "original";
  enabled: boolean;
  expiresAt: string | null;
  intro: string | null;
  opened: number;
  privacyUrl: string | null;
  qrUrl: string | null;
  removal: "request" | "immediate";
  searches: number;
  searchesPerVisitor: number;
  selfieSearch: boolean;
  url: string | null;
  watermark: boolean;
}

/** What a visitor said of a photo. */
export interface GalleryReport {
  bib: string | null;
  createdAt: string;
  faces: BoundingBox[];
  id: string;
  kind: string;
  note: string;
  photoId: string;
}

/** The newest reports of visitors, at most 1,000. */
export interface GalleryReports {
  reports: GalleryReport[];
}

export interface GetCosts {
  albumId?: string;
  by?: ("stage" | "day" | "album")[];
  from?: string;
  to?: string;
}

export type GetCredits = Record<string, unknown>;

export interface GetInvitation {
  token: string;
}

export interface GetUsage {
  by?: ("day" | "album" | "operation")[];
  from: string;
  mode?: "test" | "live";
  to: string;
}

export interface GrantCredits {
  credits: number;
  grantId?: string;
  mode: "test" | "live";
  note?: string;
  organization: string;
}

/** What an organization has after a grant. */
export interface GrantedBalance {
  balance: number;
}

/** A division of a photo into overlapping cells, as an upper bound: the service merges cells that would be too small to show more, or too many. */
export interface Grid {
  cellHeight: number;
  cellWidth: number;
  columns: number;
  rows: number;
}

export interface GridChange {
  cellHeight: number;
  cellWidth: number;
  columns: number;
  rows: number;
}

/** A task of which one process at a time has the turn. */
export interface HeldTask {
  host: string | null;
  name: string;
  until: string;
}

export interface ImageChange {
  maxDimension?: number;
}

/** The size of a generated picture. */
export interface ImageSettings {
  maxDimension: number;
  watermarked?: boolean;
}

export interface ImportStartList {
  albumId: string;
  columns?: StartListColumns;
  csv?: string;
  entries?: NewStartListEntry[];
  exclude?: string[];
  mode?: "replace" | "merge";
  ranges?: BibRange[];
}

/** What an import did. */
export interface ImportedList {
  added: number;
  entries: number;
  judging: JudgingPhotos;
  refused: RefusedRow[];
  refusedCount: number;
  removed: number;
  version: number;
  warnings: ListWarning[];
}

/** A link that has not been used. */
export interface Invitation {
  email: string;
  expiresAt: string;
  organization: string;
  purpose: "welcome" | "reset" | "enter";
  role: "owner" | "organizer" | "viewer";
}

export interface InviteAccount {
  email: string;
  role: "owner" | "organizer" | "viewer";
}

/** An account with a link for its person, which is shown this once. */
export interface InvitedAccount {
  account: Account;
  expiresAt: string;
  link: string;
}

/** Photos that are judged again. */
export interface JudgingPhotos {
  photos: number;
}

/** Something that stays. */
export interface KeptThing {
  what: string;
  why: string;
}

/** An API key, without its secret. */
export interface Key {
  createdAt: string;
  expiresAt: string | null;
  hint: string;
  id: string;
  label: string;
  lastUsedAt: string | null;
  limits: LimitsOfKey;
  mode: "test" | "live";
  revokedAt: string | null;
  scopes: ("search:read" | "photo:upload" | "album:manage")[];
}

export interface KeyLimits {
  manage?: number;
  read?: number;
  search?: number;
  upload?: number;
}

/** The keys of the organization, newest first. */
export interface KeyList {
  keys: Key[];
  nextCursor: string | null;
  total: number;
}

/** Limits of a key of its own, units a minute; 0 for no limit. Those of the service where there is none. */
export interface LimitsOfKey {
  manage: number | null;
  read: number | null;
  search: number | null;
  upload: number | null;
}

export interface ListAlbums {
  cursor?: string;
  limit?: number;
  title?: string;
}

export interface ListDeliveries {
  cursor?: string;
  limit?: number;
  state?: "pending" | "delivered" | "failed" | "cancelled";
  type?: string;
  webhookId: string;
}

export interface ListErasures {
  albumId?: string;
  cursor?: string;
  limit?: number;
}

export interface ListEvents {
  albumId?: string;
  cursor?: string;
  limit?: number;
  types?: ("photo.ready" | "photo.failed" | "album.idle" | "album.deleted" | "webhook.disabled" | "credits.low" | "person.erased" | "album.expiring")[];
}

export interface ListPhotos {
  albumId: string;
  camera?: string;
  cursor?: string;
  limit?: number;
  state?: "awaiting_upload" | "queued" | "processing" | "ready" | "failed";
  takenFrom?: string;
  takenUntil?: string;
}

export interface ListStartListEntries {
  albumId: string;
  cursor?: string;
  limit?: number;
  prefix?: string;
}

/** What is odd about a list that is imported all the same. */
export interface ListWarning {
  code: string;
  message: string;
}

export interface ListWebhooks {
  cursor?: string;
  limit?: number;
}

/** One of the sessions of an account. */
export interface ListedSession {
  createdAt: string;
  current: boolean;
  device: string;
  id: string;
  lastSeenAt: string;
}

export interface NewStartListEntry {
  bib: string;
  startAt?: string;
  team?: string;
  wave?: string;
}

export interface NewWatermark {
  imageId?: string;
  opacity?: number;
  position?: "tile" | "center" | "topLeft" | "topRight" | "bottomLeft" | "bottomRight";
  scale?: number;
}

export type Nothing = Record<string, unknown>;

export interface OneAccount {
  accountId: string;
}

export interface OneAlbum {
  albumId: string;
}

export interface OneDelivery {
  deliveryId: string;
  webhookId: string;
}

export interface OneErasure {
  receiptId: string;
}

export interface OnePhoto {
  albumId: string;
  photoId: string;
}

export interface OnePublicPhoto {
  photoId: string;
}

export interface OneReport {
  albumId: string;
  reportId: string;
}

export interface OneSelfie {
  confirm?: string;
  cursor?: string;
  imageId: string;
}

export interface OneWebhook {
  webhookId: string;
}

/** An organization. */
export interface Organization {
  id: string;
  name: string;
}

export interface PasswordChange {
  current: string;
  new: string;
}

/** A photo of an album. */
export interface Photo {
  albumId: string;
  camera: string | null;
  contentType: string;
  createdAt: string;
  failure: "CORRUPT_IMAGE" | "UNSUPPORTED_FORMAT" | "TOO_MANY_PIXELS" | "TOO_LARGE" | "MISSING_OBJECT" | "PROCESSING_CRASHED" | null;
  filename: string;
  height: number | null;
  id: string;
  skippedRunners: number;
  state: "awaiting_upload" | "queued" | "processing" | "ready" | "failed";
  takenAt: string | null;
  thumbnailUrl: string | null;
  updatedAt: string;
  url: string | null;
  width: number | null;
}

/** A photo with the faces and texts detected in it. */
export type PhotoDetail = Photo & { faces: SeenFace[]; texts: SeenText[] };

export interface PhotoFile {
  contentType: string;
  filename: string;
}

/** A page of photos, oldest first. */
export interface PhotoPage {
  nextCursor: string | null;
  photos: Photo[];
  total: number;
}

/** The URL to which a photo is uploaded. */
export interface PhotoTicket {
  expiresAt: string;
  photoId: string;
  uploadUrl: string;
}

/** The results, in the order of the entries. */
export interface PhotoTickets {
  results: TicketResult[];
}

/** What the pipelines of all processes do. */
export interface PipelineOverview {
  bottleneck: string | null;
  processes: Process[];
  stages: Stage[];
}

/** What an erasure would remove. */
export interface Preview {
  confirm: string;
  confirmUntil: string;
  deletedPhotoIds: string[];
  dryRun: boolean;
  faces: number;
  photoIds: string[];
  probes: number;
  texts: number;
  unreadPhotos: number;
}

export interface PreviewChange {
  maxDimension?: number;
  watermarked?: boolean;
}

/** The URL to which a selfie is uploaded. */
export interface ProbeTicket {
  expiresAt: string;
  imageExpiresAt: string;
  imageId: string;
  uploadUrl: string;
}

/** A running process. */
export interface Process {
  bottleneck: string | null;
  budgets: Budget[];
  device: string | null;
  host: string;
  id: string;
  models: Record<string, string>;
  photosInFlight: number;
  role: string;
  stages: Stage[];
  startedAt: string;
  version: string;
}

/** How many photos of an album are in which state. */
export interface Progress {
  albumId: string;
  awaitingUpload: number;
  bottleneck: string | null;
  failed: number;
  photosPerSecond: number | null;
  processing: number;
  queued: number;
  ready: number;
  secondsLeft: number | null;
  total: number;
}

/** Where a photo can be downloaded for some minutes. */
export interface PublicDownload {
  filename: string;
  url: string;
}

/** What erasing a face does, or did. */
export interface PublicErasure {
  confirm: string | null;
  faces: number;
  isRequest: boolean;
  receiptId: string | null;
}

/** A gallery as visitors see it. */
export interface PublicGallery {
  bibSearch: boolean;
  browse: boolean;
  consentVersion: number;
  contact: string | null;
  downloads: "none" | "preview" | "original";
  expiresAt: string | null;
  intro: string | null;
  photos: number;
  privacyUrl: string | null;
  selfieSearch: boolean;
  selfieSeconds: number;
  title: string;
}

/** A photo of a gallery. */
export interface PublicPhoto {
  certainty: "sure" | "likely" | "maybe" | null;
  height: number;
  id: string;
  takenAt: string | null;
  thumbnailUrl: string;
  url: string;
  wave: string | null;
  why: "bib" | "face" | "face and bib" | null;
  width: number;
}

/** A page of photos. */
export interface PublicPhotos {
  cursor: string | null;
  nextCursor: string | null;
  photos: PublicPhoto[];
  total: number;
}

export interface RecognitionChange {
  confidenceThreshold?: number;
  enabled?: boolean;
  grid?: GridChange | null;
  mode?: "photo" | "grid";
}

/** Settings of face or bib recognition. */
export interface RecognitionSettings {
  confidenceThreshold: number;
  enabled: boolean;
  grid: Grid | null;
  mode: "photo" | "grid";
}

export interface Redeliver {
  deliveryId?: string;
  since?: string;
  webhookId: string;
}

/** How many deliveries are made again. */
export interface Redelivered {
  queued: number;
}

/** A row that was not taken. */
export interface RefusedRow {
  code: string;
  line: number;
  message: string;
}

/** What was removed. */
export interface RemovedCounts {
  bytes: number;
  faces: number;
  objects: number;
  photos: number;
  probes: number;
  texts: number;
  vectors: number;
}

export interface ReportPhoto {
  kind: "not_me" | "report";
  note?: string;
  photoId: string;
}

/** The result of `albums/reprocess`. */
export interface Reprocessing {
  declined: number;
  message: string;
  queued: number;
  success: boolean;
}

export interface RetentionChange {
  facesDays?: number | null;
  photosDays?: number | null;
}

/** For how long faces and photos of an album are kept. Days are counted from when its last photo was confirmed. A week before the end the event `album.expiring` tells. */
export interface RetentionSettings {
  facesDays: number | null;
  photosDays: number | null;
}

export interface RevokeKey {
  keyId: string;
}

export interface RotateSecret {
  overlapHours?: number;
  webhookId: string;
}

/** A new secret, which is shown this once. */
export interface RotatedSecret {
  secret: string;
}

/** A search for what was erased. */
export interface Scan {
  finishedAt: string;
  left: number;
  stores: StoreScan[];
}

export interface SearchFace {
  albumId: string;
  cursor?: string;
  imageId: string;
  limit?: number;
  minConfidence?: number;
}

export interface SearchGallery {
  cursor?: string;
  text: string;
}

export interface SearchText {
  albumId: string;
  cursor?: string;
  exact?: boolean;
  limit?: number;
  minConfidence?: number;
  text: string;
}

/** A face detected in a photo. */
export interface SeenFace {
  boundingBox: BoundingBox;
  confidence: number;
  indexed: boolean;
  reason: "LOW_CONFIDENCE" | "SMALL_BOUNDING_BOX" | "LOW_SHARPNESS" | "EXTREME_POSE" | "NOT_A_BIB" | "NOT_ON_START_LIST" | "PARTIAL" | "ERASED" | null;
}

/** A text read in a photo. */
export interface SeenText {
  alternatives: AlternativeText[];
  boundingBox: BoundingBox;
  confidence: number;
  indexed: boolean;
  onStartList: boolean | null;
  readAs: string | null;
  reason: "LOW_CONFIDENCE" | "SMALL_BOUNDING_BOX" | "LOW_SHARPNESS" | "EXTREME_POSE" | "NOT_A_BIB" | "NOT_ON_START_LIST" | "PARTIAL" | "ERASED" | null;
  text: string;
  wave: string | null;
}

/** The health of the whole service. */
export interface ServiceHealth {
  components: Component[];
  processes: Process[];
  queue: WaitingPhotos;
  tasks: HeldTask[];
  version: string;
}

/** Who is signed in, and what the console has to know of the service. */
export interface Session {
  account: Account;
  environment: "local" | "sandbox" | "production";
  maxPhotoBytes: number;
  mediaTypes: string[];
  modes: ("test" | "live")[];
  organization: Organization;
  session: SessionTimes;
  version: string;
}

/** The sessions of an account, newest first. */
export interface SessionList {
  nextCursor: string | null;
  sessions: ListedSession[];
  total: number;
}

/** How long a session lasts. */
export interface SessionTimes {
  createdAt: string;
  expiresAt: string;
  id: string;
}

export interface SetMockCredits {
  balance: number;
}

export interface SetWatermark {
  albumId: string;
  watermark: NewWatermark | null;
}

/** The format that the bibs of an album show. */
export interface ShownFormat {
  learned: string | null;
  readings: number;
  share: number;
}

export interface SignPhoto {
  albumId: string;
  contentType: string;
  filename: string;
}

export interface SignPhotos {
  albumId: string;
  entries: PhotoFile[];
}

export interface SignSelfie {
  albumId: string;
  forErasure?: boolean;
}

/** A stage, of one process or of all together. */
export interface Stage {
  blocked: number;
  busy: number;
  depth: number;
  name: string;
  photosPerSecond: number;
}

/** The start list of an album. */
export interface StartList {
  entries: number;
  importedAt: string | null;
  judged: number;
  left: number;
  version: number;
  waves: Wave[];
  withoutLattice: number;
}

export interface StartListChange {
  enabled?: boolean;
  offListShare?: number;
}

export interface StartListColumns {
  bib?: string;
  startAt?: string;
  team?: string;
  wave?: string;
}

/** A page of entries, by bib. */
export interface StartListEntries {
  entries: Entry[];
  nextCursor: string | null;
  total: number;
}

/** How the start list of an album is used. Without one it means nothing. */
export interface StartListSettings {
  enabled: boolean;
  offListShare: number;
}

/** What is stored now, whatever days are asked for. */
export interface StorageReport {
  bytes: number;
  money: number | null;
  objects: number;
}

/** What a scan found in one place. */
export interface StoreScan {
  left: number;
  looked: number;
  store: string;
}

/** What an erasure is about. */
export interface Subject {
  kind: string;
}

/** A photo in which the bib was read. */
export interface TextHit {
  boundingBox: BoundingBox;
  confidence: number;
  id: string;
  matchedText: string;
  onStartList: boolean | null;
  takenAt: string | null;
  team: string | null;
  thumbnailUrl: string;
  url: string;
  wave: string | null;
  why: string;
}

/** Photos in which the bib was read, exact matches first, one hit per photo. */
export interface TextHits {
  nextCursor: string | null;
  photos: TextHit[];
  total: number;
}

/** A ticket, or the reason why there is none. */
export interface TicketResult {
  error?: EntryError;
  expiresAt?: string;
  filename: string;
  photoId?: string;
  success: boolean;
  uploadUrl?: string;
}

export interface UpdateAccount {
  accountId: string;
  disabled?: boolean;
  role?: "owner" | "organizer" | "viewer";
}

export interface UpdateAlbum {
  acknowledge?: "biometric";
  albumId: string;
  config?: AlbumConfigChange;
  coverUrl?: string | null;
  tags?: string[];
  title?: string;
}

export interface UpdateGallery {
  albumId: string;
  bibSearch?: boolean;
  browse?: boolean;
  contact?: string | null;
  downloads?: "none" | "preview" | "original";
  enabled?: boolean;
  expiresAt?: string | null;
  intro?: string | null;
  newLink?: boolean;
  privacyUrl?: string | null;
  removal?: "request" | "immediate";
  searchesPerVisitor?: number;
  selfieSearch?: boolean;
  watermark?: boolean;
}

export interface UpdateOwnAccount {
  language?: string | null;
  name?: string;
  password?: PasswordChange;
}

export interface UpdateWebhook {
  enabled?: boolean;
  label?: string;
  types?: ("photo.ready" | "photo.failed" | "album.idle" | "album.deleted" | "credits.low" | "person.erased" | "album.expiring")[];
  url?: string;
  webhookId: string;
}

/** An album after an update. */
export type UpdatedAlbum = Album & { reprocessingNeeded: boolean };

/** What was used. */
export interface UsageReport {
  mode: string;
  rows: UsageRow[];
  total: UsageTotal;
}

/** How often something was done. */
export interface UsageRow {
  albumId?: string;
  count: number;
  credits: number;
  day?: string;
  operation?: string;
}

/** The sums of all rows. */
export interface UsageTotal {
  count: number;
  credits: number;
}

/** A search for what was erased. */
export interface Verification {
  checkedAt: string;
  left: number;
  stores: StoreScan[];
}

/** The photos of all organizations that wait. */
export interface WaitingPhotos {
  oldestSeconds: number | null;
  queued: number;
}

/** The watermark of an album, and which photos show it. */
export interface Watermark {
  albumId: string;
  photosLeft: number;
  photosMarked: number;
  sampleUrl: string | null;
  watermark: WatermarkSettings | null;
}

/** How a watermark is drawn. */
export interface WatermarkSettings {
  opacity: number;
  position: "tile" | "center" | "topLeft" | "topRight" | "bottomLeft" | "bottomRight";
  scale: number;
}

/** The URL to which the picture of a watermark is uploaded. */
export interface WatermarkTicket {
  expiresAt: string;
  imageId: string;
  uploadUrl: string;
}

/** The bibs of a wave. */
export interface Wave {
  entries: number;
  wave: string | null;
}

/** A URL that is told events. */
export interface Webhook {
  albumId: string | null;
  createdAt: string;
  disabledReason: string | null;
  enabled: boolean;
  id: string;
  label: string;
  lastFailureAt: string | null;
  lastSuccessAt: string | null;
  pending: number;
  types: string[];
  updatedAt: string;
  url: string;
}

/** A page of webhooks, oldest first. */
export interface WebhookPage {
  nextCursor: string | null;
  total: number;
  webhooks: Webhook[];
}

export interface Operations {
  "albums/create": [CreateAlbum, Album];
  "albums/list": [ListAlbums, AlbumPage];
  "albums/get": [OneAlbum, AlbumDetail];
  "albums/update": [UpdateAlbum, UpdatedAlbum];
  "albums/delete": [OneAlbum, Deletion];
  "albums/reprocess": [OneAlbum, Reprocessing];
  "albums/progress": [OneAlbum, Progress];
  "albums/startlist/import": [ImportStartList, ImportedList];
  "albums/startlist/check": [ImportStartList, CheckedList];
  "albums/startlist/get": [OneAlbum, StartList];
  "albums/startlist/entries": [ListStartListEntries, StartListEntries];
  "albums/startlist/delete": [OneAlbum, Acknowledgement];
  "photos/photo/signed": [SignPhoto, PhotoTicket];
  "photos/photo/signed/batch": [SignPhotos, PhotoTickets];
  "photos/photo/success": [OnePhoto, Acknowledgement];
  "photos/photo/success/batch": [ConfirmPhotos, Confirmations];
  "photos/photo/list": [ListPhotos, PhotoPage];
  "photos/photo/get": [OnePhoto, PhotoDetail];
  "photos/photo/delete": [OnePhoto, Deletion];
  "photos/photo/retry": [OnePhoto, Acknowledgement];
  "photos/search/face/signed": [SignSelfie, ProbeTicket];
  "photos/search/face/list": [SearchFace, FaceHits];
  "photos/search/text/list": [SearchText, TextHits];
  "faces/erase": [EraseFaces, ErasureAnswer];
  "people/erase": [ErasePerson, ErasureAnswer];
  "erasures/list": [ListErasures, ErasurePage];
  "erasures/get": [OneErasure, Erasure];
  "erasures/verify": [OneErasure, Verification];
  "albums/gallery/get": [OneAlbum, Gallery];
  "albums/gallery/update": [UpdateGallery, Gallery];
  "albums/gallery/reports": [OneAlbum, GalleryReports];
  "albums/gallery/reports/erase": [EraseReported, ErasureAnswer];
  "albums/gallery/reports/dismiss": [OneReport, Acknowledgement];
  "albums/watermark/get": [OneAlbum, Watermark];
  "albums/watermark/signed": [OneAlbum, WatermarkTicket];
  "albums/watermark/set": [SetWatermark, Watermark];
  "albums/cameras/list": [OneAlbum, Cameras];
  "photos/download/create": [CreateDownload, DownloadTicket];
  "events/list": [ListEvents, EventPage];
  "webhooks/create": [CreateWebhook, CreatedWebhook];
  "webhooks/list": [ListWebhooks, WebhookPage];
  "webhooks/get": [OneWebhook, Webhook];
  "webhooks/update": [UpdateWebhook, Webhook];
  "webhooks/delete": [OneWebhook, Acknowledgement];
  "webhooks/rotate": [RotateSecret, RotatedSecret];
  "webhooks/test": [OneWebhook, Delivery];
  "webhooks/deliveries/list": [ListDeliveries, DeliveryPage];
  "webhooks/deliveries/get": [OneDelivery, DeliveryDetail];
  "webhooks/redeliver": [Redeliver, Redelivered];
  "credits/get": [GetCredits, CreditReport];
  "credits/mock/set": [SetMockCredits, CreditReport];
  "usage/get": [GetUsage, UsageReport];
  "usage/costs": [GetCosts, CostReport];
  "session/create": [CreateSession, Session];
  "session/get": [Nothing, Session];
  "session/delete": [Nothing, Acknowledgement];
  "sessions/list": [Nothing, SessionList];
  "sessions/end": [EndSession, Acknowledgement];
  "invitation/get": [GetInvitation, Invitation];
  "invitation/accept": [AcceptInvitation, Session];
  "account/update": [UpdateOwnAccount, Account];
  "accounts/list": [Nothing, AccountPage];
  "accounts/invite": [InviteAccount, InvitedAccount];
  "accounts/reset": [OneAccount, InvitedAccount];
  "accounts/update": [UpdateAccount, Account];
  "keys/create": [CreateKey, CreatedKey];
  "keys/list": [Nothing, KeyList];
  "keys/revoke": [RevokeKey, Acknowledgement];
  "pipeline/get": [Nothing, PipelineOverview];
  "usage/dearest": [OneAlbum, DearestPhotos];
  "operator/get": [Nothing, ServiceHealth];
  "operator/credits/grant": [GrantCredits, GrantedBalance];
}

export interface VisitorOperations {
  "gallery/get": [Nothing, PublicGallery];
  "gallery/search/text": [SearchGallery, PublicPhotos];
  "gallery/search/face/signed": [AgreeToSelfie, ProbeTicket];
  "gallery/search/face/list": [OneSelfie, PublicPhotos];
  "gallery/search/face/forget": [OneSelfie, Acknowledgement];
  "gallery/photos/list": [BrowseGallery, PublicPhotos];
  "gallery/download": [OnePublicPhoto, PublicDownload];
  "gallery/download/create": [CreateGalleryDownload, DownloadTicket];
  "gallery/report": [ReportPhoto, Acknowledgement];
  "gallery/erase/faces": [OneSelfie, PublicErasure];
  "gallery/erase/request": [SearchGallery, Acknowledgement];
}
