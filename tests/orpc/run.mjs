// Calls every operation of the running service through the real oRPC client.
// Environment: BASE_URL (ends with /openapi), KEY, NARROW_KEY (search:read alone), POOR_KEY (a test key of an organization
// of its own), LIMITED_KEY (two reads a minute), PHOTO (a JPEG file), SELFIE (a JPEG
// file of the person in it), BIB (the number in it). Run by the integration test `orpc`.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { safe } from '@orpc/client'
import { contract } from './contract.mjs'
import { clientsOf, fails, ignored, put, runSteps, until, uuid } from './tools.mjs'

const { BASE_URL, KEY, NARROW_KEY, POOR_KEY, LIMITED_KEY, PHOTO, SELFIE, BIB } = process.env
const { clientWith, called } = clientsOf(contract)
const client = clientWith(KEY)

// A PNG of one pixel.
const PIXEL = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)

async function untilIdle(albumId) {
  return until(() => client.albums.progress({ albumId }), ({ queued, processing }) => queued === 0 && processing === 0)
}

// Asks what would be erased, and erases it.
async function erase(operation, request) {
  const preview = await operation({ ...request, dryRun: true })
  const { dryRun, ...receipt } = await operation({ ...request, confirm: preview.confirm })
  assert.deepEqual([preview.dryRun, dryRun], [true, false])
  assert.match(receipt.jws, /^[\w-]+\.[\w-]+\.[\w-]+$/)
  return { preview, receipt }
}

const steps = {
  async 'an album is made with its documented shape'() {
    const album = await client.albums.create({ title: 'Tide Half Marathon', coverUrl: 'https://example.com/c.jpg' })
    assert.match(album.id, uuid)
    assert.match(album.organizationId, uuid)
    assert.match(album.createdBy, uuid)
    assert.equal(album.title, 'Tide Half Marathon')
    assert.equal(album.coverUrl, 'https://example.com/c.jpg')
    assert.deepEqual(album.tags, [])
    for (const kind of ['face', 'text']) {
      assert.deepEqual(Object.keys(album.config[kind]).filter((k) => ['confidenceThreshold', 'enabled', 'grid', 'mode'].includes(k)).sort(), ['confidenceThreshold', 'enabled', 'grid', 'mode'])
      assert.equal(album.config[kind].enabled, true)
      assert.equal(album.config[kind].mode, 'photo')
      assert.equal(album.config[kind].grid, null)
    }
    assert.equal(album.config.preview.maxDimension, 2048)
    assert.equal(album.config.thumbnail.maxDimension, 512)
    assert.ok(!Number.isNaN(Date.parse(album.createdAt)) && !Number.isNaN(Date.parse(album.updatedAt)))
    steps.album = album.id
  },

  async 'a call without input is accepted by albums.list'() {
    const page = await client.albums.list()
    assert.ok(page.albums.some((album) => album.id === steps.album))
    assert.equal(page.total, page.albums.length)
    assert.equal(page.nextCursor, null)
  },

  async 'events are listed and streamed'() {
    const { nextCursor } = await client.events.list({ types: ['album.deleted'] })
    assert.match(nextCursor, /^[0-9a-f]{32}$/)
    const { id } = await client.albums.create({ title: 'Soon gone' })
    const streaming = clientWith(KEY, { accept: 'text/event-stream' })
    const stream = await streaming.events.list({ cursor: nextCursor, types: ['album.deleted'] })
    await client.albums.delete({ albumId: id })
    for await (const event of stream) {
      assert.equal(event.type, 'album.deleted')
      assert.equal(event.data.albumId, id)
      assert.ok(event.data.sequence > 0)
      break
    }
    const page = await client.events.list({ cursor: nextCursor, types: ['album.deleted'] })
    assert.deepEqual(page.events.map((event) => event.data.albumId), [id])
  },

  async 'a photo goes the whole way and progress streams as an event iterator'() {
    const ticket = await client.photos.photo.signed({ albumId: steps.album, filename: 'a.jpg', contentType: 'image/jpeg' })
    await put(ticket.uploadUrl, await readFile(PHOTO))
    const confirmed = await client.photos.photo.success({ albumId: steps.album, photoId: ticket.photoId })
    assert.equal(confirmed.success, true)
    assert.equal(typeof confirmed.message, 'string')
    const streaming = clientWith(KEY, { accept: 'text/event-stream' })
    let last
    for await (const progress of await streaming.albums.progress({ albumId: steps.album })) last = progress
    assert.equal(last.albumId, steps.album)
    assert.equal(last.ready, 1)
    assert.equal(last.total, 1)
    assert.equal((await untilIdle(steps.album)).ready, 1)
    steps.photo = ticket.photoId
  },

  async 'text and face search find it'() {
    const byText = await client.photos.search.textList({ albumId: steps.album, text: BIB })
    assert.equal(byText.total, 1)
    assert.equal(byText.photos[0].id, steps.photo)
    assert.equal(byText.photos[0].matchedText, BIB)
    assert.equal((await fetch(byText.photos[0].url)).status, 200)

    const probe = await client.photos.search.faceSigned({ albumId: steps.album })
    await put(probe.uploadUrl, await readFile(SELFIE))
    const byFace = await client.photos.search.faceList({ albumId: steps.album, imageId: probe.imageId })
    assert.equal(byFace.total, 1)
    const [hit] = byFace.photos
    assert.equal(hit.id, steps.photo)
    assert.ok(hit.confidence > 0 && hit.confidence <= 100)
    for (const side of ['top', 'left', 'width', 'height']) assert.equal(typeof hit.boundingBox[side], 'number')
    assert.equal((await fetch(hit.thumbnailUrl)).status, 200)
  },

  async 'a start list judges the photo that was read before it'() {
    const { startlist } = client.albums
    const entries = [{ bib: BIB, wave: 'B' }, { bib: '98765' }]
    const checked = await startlist.check({ albumId: steps.album, entries })
    assert.equal(checked.photos, 1)
    const imported = await startlist.import({ albumId: steps.album, entries })
    assert.deepEqual([imported.entries, imported.judging.photos, imported.refused], [2, 1, []])
    const list = await until(() => startlist.get({ albumId: steps.album }), ({ left }) => left === 0)
    assert.deepEqual([list.entries, list.judged, list.left, list.withoutLattice], [2, 1, 0, 0])
    const photo = await client.photos.photo.get({ albumId: steps.album, photoId: steps.photo })
    const text = photo.texts.find((text) => text.text === BIB)
    assert.deepEqual([text.onStartList, text.indexed, text.alternatives[0].text], [true, true, BIB])
    for (const { confidence } of text.alternatives) assert.ok(confidence > 0 && confidence <= 100)
    const page = await startlist.entries({ albumId: steps.album, prefix: BIB })
    assert.deepEqual([page.entries.map(({ bib, wave }) => [bib, wave]), page.total], [[[BIB, 'B']], 1])
    await startlist.delete({ albumId: steps.album })
  },

  async 'many photos are signed and confirmed in one call, listed, retried and deleted'() {
    const { photo } = client.photos
    const albumId = steps.album
    const entries = [{ filename: 'b.jpg', contentType: 'image/jpeg' }, { filename: 'c.gif', contentType: 'image/gif' }]
    const tickets = (await photo.signedBatch({ albumId, entries })).results
    assert.deepEqual(tickets.map(({ success, error }) => [success, error?.status]), [[true, undefined], [false, 415]])
    const [{ photoId, uploadUrl }] = tickets
    await put(uploadUrl, Buffer.from('no picture at all'))
    const confirmed = (await photo.successBatch({ albumId, photoIds: [photoId] })).results
    assert.deepEqual(confirmed.map(({ success }) => success), [true])
    await untilIdle(albumId)
    const failed = await photo.list({ albumId, state: 'failed' })
    assert.deepEqual([failed.photos.map(({ id }) => id), failed.photos[0].failure], [[photoId], 'UNSUPPORTED_FORMAT'])
    await photo.retry({ albumId, photoId })
    await untilIdle(albumId)
    await photo.delete({ albumId, photoId })
    await fails(photo.get({ albumId, photoId }), { code: 'NOT_FOUND', status: 404, defined: true, data: ignored })
    await client.albums.reprocess({ albumId })
    assert.equal((await untilIdle(albumId)).ready, 1)
  },

  async 'photos are marked and downloaded'() {
    const { watermark } = client.albums
    const albumId = steps.album
    assert.equal((await watermark.get({ albumId })).watermark, null)
    const { uploadUrl, imageId } = await watermark.signed({ albumId })
    await put(uploadUrl, PIXEL, 'image/png')
    await watermark.set({ albumId, watermark: { imageId, position: 'tile' } })
    const marked = await until(() => watermark.get({ albumId }), ({ photosLeft }) => photosLeft === 0)
    assert.deepEqual([marked.watermark.position, marked.photosMarked], ['tile', 1])
    assert.equal((await fetch(marked.sampleUrl)).status, 200)
    const { url } = await client.photos.downloadCreate({ albumId, photoIds: [steps.photo], size: 'marked' })
    const archive = new Uint8Array(await (await fetch(url)).arrayBuffer())
    assert.equal(new TextDecoder().decode(archive.subarray(0, 2)), 'PK')
    assert.ok(Array.isArray((await client.albums.camerasList({ albumId })).cameras))
  },

  async 'a gallery is opened, and what its visitors report is answered'() {
    const { gallery } = client.albums
    const albumId = steps.album
    assert.equal((await gallery.get({ albumId })).enabled, false)
    const { enabled, url } = await gallery.update({ albumId, enabled: true })
    assert.equal(enabled, true)
    assert.equal((await fetch(url)).status, 200)
    assert.deepEqual((await gallery.reports({ albumId })).reports, [])
    const unknown = { albumId, reportId: steps.photo }
    await fails(gallery.reportsErase({ ...unknown, dryRun: true }), { code: 'NOT_FOUND', status: 404, defined: true, data: ignored })
    await gallery.reportsDismiss(unknown)
  },

  async 'webhooks are made, changed and tried'() {
    const { webhooks } = client
    const made = await webhooks.create({ url: 'https://example.com/hook', types: ['photo.ready'], label: 'gate' })
    assert.match(made.secret, /^whsec_/)
    const webhookId = made.id
    assert.deepEqual((await webhooks.list({})).webhooks.map(({ id }) => id), [webhookId])
    assert.equal((await webhooks.update({ webhookId, label: 'finish' })).label, 'finish')
    assert.equal((await webhooks.get({ webhookId })).label, 'finish')
    assert.notEqual((await webhooks.rotate({ webhookId })).secret, made.secret)
    await webhooks.test({ webhookId })
    const [delivery] = (await webhooks.deliveriesList({ webhookId })).deliveries
    const one = { webhookId, deliveryId: delivery.id }
    assert.equal((await webhooks.deliveriesGet(one)).id, delivery.id)
    await webhooks.redeliver(one)
    await webhooks.delete({ webhookId })
    await fails(webhooks.get({ webhookId }), { code: 'NOT_FOUND', status: 404, defined: true, data: ignored })
  },

  async 'a runner is erased, with receipts that can be verified'() {
    const albumId = steps.album
    await fails(client.peopleErase({ albumId, bib: BIB }), {
      code: 'PRECONDITION_FAILED', status: 412, defined: true,
      data: (data) => assert.equal(data.code, 'CONFIRM_REQUIRED'),
    })
    const probe = await client.photos.search.faceSigned({ albumId })
    await put(probe.uploadUrl, await readFile(SELFIE))
    const byFace = await erase(client.facesErase, { albumId, imageId: probe.imageId })
    assert.deepEqual([byFace.preview.faces, byFace.receipt.removed.vectors], [1, 1])
    const byBib = await erase(client.peopleErase, { albumId, bib: BIB })
    assert.equal((await client.photos.search.textList({ albumId, text: BIB })).total, 0)
    const { receiptId } = byBib.receipt
    assert.deepEqual(await client.erasures.get({ receiptId }), byBib.receipt)
    assert.equal((await client.erasures.verify({ receiptId })).left, 0)
    const listed = (await client.erasures.list({ albumId })).erasures.map((erasure) => erasure.receiptId)
    for (const { receipt } of [byFace, byBib]) assert.ok(listed.includes(receipt.receiptId), `${listed}`)
  },

  async 'defined errors arrive as defined ORPCErrors'() {
    await fails(clientWith(undefined).albums.list(), { code: 'UNAUTHORIZED', status: 401, defined: true, data: ignored })
    await fails(clientWith('nonsense').albums.list({}), { code: 'UNAUTHORIZED', status: 401, defined: true, data: ignored })
    await fails(clientWith(NARROW_KEY).albums.create({ title: 'x' }), {
      code: 'FORBIDDEN', status: 403, defined: true,
      data: (data) => assert.equal(data.code, 'INSUFFICIENT_SCOPE'),
    })
    await fails(client.albums.get({ albumId: '01890000-0000-7000-8000-000000000000' }), { code: 'NOT_FOUND', status: 404, defined: true, data: ignored })
    const unsent = await client.photos.photo.signed({ albumId: steps.album, filename: 'b.jpg', contentType: 'image/jpeg' })
    await fails(client.photos.photo.success({ albumId: steps.album, photoId: unsent.photoId }), {
      code: 'PRECONDITION_FAILED', status: 412, defined: true,
      data: (data) => assert.equal(data.code, 'UPLOAD_MISSING'),
    })
    await fails(client.photos.photo.signed({ albumId: steps.album, filename: 'b.gif', contentType: 'image/gif' }), {
      code: 'UNSUPPORTED_MEDIA_TYPE', status: 415, defined: true, data: ignored,
    })
    await client.albums.update({ albumId: steps.album, config: { text: { enabled: false } } })
    await fails(client.photos.search.textList({ albumId: steps.album, text: BIB }), {
      code: 'UNPROCESSABLE_CONTENT', status: 422, defined: true,
      data: (data) => assert.equal(data.declineCode, 'TEXT_SEARCH_DISABLED'),
    })
  },

  async 'credits are shown and used up, and the decline arrives with its code'() {
    const poor = clientWith(POOR_KEY)
    const rich = await poor.credits.get()
    assert.equal(rich.mode, 'test')
    assert.equal(rich.balance, 10_000)
    assert.equal(rich.unlimited, false)
    assert.equal((await poor.credits.mockSet({ balance: 0.5 })).balance, 0.5)
    const { id } = await poor.albums.create({ title: 'Too dear' })
    await fails(poor.photos.photo.signed({ albumId: id, filename: 'a.jpg', contentType: 'image/jpeg' }), {
      code: 'UNPROCESSABLE_CONTENT', status: 422, defined: true,
      data: (data) => assert.deepEqual(data, { declineCode: 'INSUFFICIENT_CREDITS', balance: 0.5, price: 1 }),
    })
    const today = new Date().toISOString().slice(0, 10)
    const usage = await client.usage.get({ from: today, to: today, by: ['operation'] })
    assert.ok(usage.rows.some((row) => row.operation === 'photo' && row.count >= 1), JSON.stringify(usage))
    assert.ok(Array.isArray((await client.usage.costs({ from: today, to: today })).rows))
  },

  async 'a request above the limit arrives with the seconds to wait'() {
    const limited = clientWith(LIMITED_KEY)
    // A third request may be the first of the next minute, a fifth cannot be.
    const calls = []
    for (let call = 0; call < 5; call++) calls.push(await safe(limited.credits.get()))
    const refused = calls.find(({ error }) => error)
    assert.ok(refused, 'none of five requests was refused')
    assert.equal(refused.error.code, 'TOO_MANY_REQUESTS')
    assert.equal(refused.error.status, 429)
    assert.equal(refused.error.defined, true)
    assert.ok(refused.error.data.tryAgainIn > 0 && refused.error.data.tryAgainIn <= 60)
  },

  async 'input problems arrive as undefined ORPCErrors with issues'() {
    const error = await fails(client.albums.create({ title: '', coverUrl: 7 }), {
      code: 'BAD_REQUEST', status: 400, defined: false,
      data: (data) => assert.deepEqual(data.issues.map((issue) => issue.path.join('.')).sort(), ['coverUrl', 'title']),
    })
    assert.equal(error.message, 'Input validation failed')
  },

  async 'an unknown path is an error the client understands'() {
    await fails(client.nothing({}), { code: 'NOT_FOUND', status: 404, defined: true, data: ignored })
  },

  async 'an album can be deleted'() {
    await client.albums.delete({ albumId: steps.album })
    await fails(client.albums.get({ albumId: steps.album }), { code: 'NOT_FOUND', status: 404, defined: true, data: ignored })
  },

  async 'every operation of the document was called, and no other'() {
    const { paths } = await (await fetch(`${BASE_URL}/openapi.json`)).json()
    called.delete('/no/such/path')
    assert.deepEqual([...called].sort(), Object.keys(paths).sort())
  },
}

await runSteps(steps)
