/** The operations that the console calls, with what they take and give. */

import type {
  Account,
  ActivityEvent,
  Album,
  AlbumDetail,
  CheckedList,
  ConfigChange,
  Confirmation,
  CostRow,
  Costs,
  DearPhoto,
  Delivery,
  DeliveryDetail,
  Done,
  Erasure,
  ErasureAnswer,
  Gallery,
  Hits,
  ImportedList,
  InAlbum,
  InvitedAccount,
  Key,
  ListSource,
  Mode,
  OfReport,
  OnePhoto,
  Paged,
  Photo,
  PhotoDetail,
  PhotoFilter,
  Pipeline,
  Progress,
  Report,
  Role,
  Scope,
  SearchPage,
  ServiceHealth,
  Session,
  StartListSummary,
  Stored,
  StoreScan,
  TicketResult,
  UsageRow,
  Watermark,
  WatermarkSettings,
  Webhook,
} from "./api";

export interface Operations {
  "session/create": [{ email: string; password: string }, Session];
  "session/get": [object, Session];
  "session/delete": [object, Done];
  "invitation/get": [{ token: string }, { email: string; organization: string; role: Role; purpose: "welcome" | "reset" | "enter"; expiresAt: string }];
  "invitation/accept": [{ token: string; password?: string; name?: string }, Session];
  "account/update": [{ name?: string; language?: string | null; password?: { current: string; new: string } }, Account];
  "accounts/list": [object, { accounts: Account[] }];
  "accounts/invite": [{ email: string; role: Role }, InvitedAccount];
  "accounts/reset": [{ accountId: string }, InvitedAccount];
  "accounts/update": [{ accountId: string; role?: Role; disabled?: boolean }, Account];
  "sessions/list": [object, { sessions: { id: string; device: string; createdAt: string; lastSeenAt: string; current: boolean }[] }];
  "sessions/end": [{ sessionId: string }, Done];
  "keys/create": [{ label: string; mode: Mode; scopes: Scope[]; expiresInDays?: number; limits?: Partial<Record<"read" | "manage" | "upload" | "search", number>> }, Key & { key: string }];
  "keys/list": [object, { keys: Key[] }];
  "keys/revoke": [{ keyId: string }, Done];
  "pipeline/get": [object, Pipeline];
  "operator/get": [object, ServiceHealth];
  "operator/credits/grant": [{ organization: string; mode: Mode; credits: number; note: string }, { balance: number }];
  "albums/list": [Paged & { title?: string }, { albums: Album[]; nextCursor: string | null; total: number }];
  "albums/create": [{ title: string }, Album];
  "albums/get": [InAlbum, AlbumDetail];
  "albums/update": [InAlbum & { title?: string; config?: ConfigChange; acknowledge?: "biometric" }, Album & { reprocessingNeeded: boolean }];
  "albums/delete": [InAlbum, Done & { receipt: Erasure }];
  "albums/reprocess": [InAlbum, Done & { queued: number }];
  "albums/progress": [InAlbum, Progress];
  "albums/gallery/get": [InAlbum, Gallery];
  "albums/gallery/reports": [InAlbum, { reports: Report[] }];
  "albums/gallery/reports/erase": [OfReport & { confirm?: string; dryRun?: boolean; photos?: "keep" | "delete" }, ErasureAnswer];
  "albums/gallery/reports/dismiss": [OfReport, Done];
  "albums/gallery/update": [InAlbum & Partial<Gallery> & { newLink?: true }, Gallery];
  "albums/watermark/get": [InAlbum, Watermark];
  "albums/watermark/signed": [InAlbum, { uploadUrl: string; imageId: string }];
  "albums/watermark/set": [InAlbum & { watermark: (Partial<WatermarkSettings> & { imageId?: string }) | null }, Watermark];
  "albums/cameras/list": [InAlbum, { cameras: { camera: string | null; photos: number }[] }];
  "albums/startlist/get": [InAlbum, StartListSummary];
  "albums/startlist/check": [ListSource, CheckedList];
  "albums/startlist/import": [ListSource, ImportedList];
  "albums/startlist/delete": [InAlbum, Done];
  "photos/photo/list": [InAlbum & Paged & PhotoFilter, { photos: Photo[]; nextCursor: string | null; total: number }];
  "photos/photo/get": [OnePhoto, PhotoDetail];
  "photos/photo/retry": [OnePhoto, Done];
  "photos/photo/delete": [OnePhoto, Done & { receipt: Erasure }];
  "photos/photo/signed/batch": [InAlbum & { entries: { filename: string; contentType: string }[] }, { results: TicketResult[] }];
  "photos/photo/success/batch": [InAlbum & { photoIds: string[] }, { results: Confirmation[] }];
  "photos/search/face/signed": [InAlbum, { uploadUrl: string; imageId: string }];
  "photos/search/face/list": [SearchPage & { imageId: string }, Hits];
  "photos/search/text/list": [SearchPage & { text: string; exact?: boolean }, Hits];
  "photos/download/create": [
    InAlbum & { photoIds?: string[]; bib?: string; imageId?: string; size?: "preview" | "marked" | "original" },
    { url: string; files: number; bytes: number },
  ];
  "people/erase": [InAlbum & { bib: string; confirm?: string; dryRun?: boolean; faces?: boolean; photos?: "keep" | "delete" }, ErasureAnswer];
  "erasures/list": [Paged & { albumId?: string }, { erasures: Erasure[]; nextCursor: string | null; total: number }];
  "erasures/get": [{ receiptId: string }, Erasure];
  "erasures/verify": [{ receiptId: string }, { checkedAt: string; left: number; stores: StoreScan[] }];
  "events/list": [Paged & { albumId?: string }, { events: ActivityEvent[]; nextCursor: string }];
  "usage/get": [{ from: string; to: string; by?: string[]; mode?: string }, { rows: UsageRow[]; total: { count: number; credits: number } }];
  "usage/costs": [
    { from?: string; to?: string; by?: string[]; albumId?: string },
    { rows: CostRow[]; perPhoto: Costs | null; photos: number; storage: Stored },
  ];
  "usage/dearest": [InAlbum, { photos: DearPhoto[]; looked: number; total: number }];
  "credits/get": [object, { balance: number; held: number; granted: number; spent: number; unlimited: boolean; mode: Mode; prices: Record<string, number> }];
  "webhooks/list": [Paged, { webhooks: Webhook[]; total: number }];
  "webhooks/get": [{ webhookId: string }, Webhook];
  "webhooks/create": [{ url: string; label?: string; types?: string[]; albumId?: string }, Webhook & { secret: string }];
  "webhooks/update": [{ webhookId: string; enabled?: boolean; label?: string }, Webhook];
  "webhooks/delete": [{ webhookId: string }, Done];
  "webhooks/rotate": [{ webhookId: string; overlapHours?: number }, { secret: string }];
  "webhooks/test": [{ webhookId: string }, Delivery];
  "webhooks/redeliver": [{ webhookId: string; deliveryId: string }, { queued: number }];
  "webhooks/deliveries/list": [Paged & { webhookId: string }, { deliveries: Delivery[]; nextCursor: string | null; total: number }];
  "webhooks/deliveries/get": [{ webhookId: string; deliveryId: string }, DeliveryDetail];
}
