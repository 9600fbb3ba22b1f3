// Calls the running service through the real oRPC client, as a partner's program would.
// Environment: BASE_URL (ends with /openapi), KEY, NARROW_KEY (search:read alone), POOR_KEY (a test key of an organization
// of its own), LIMITED_KEY (two reads a minute), PHOTO (a JPEG file), SELFIE (a JPEG
// file of the person in it), BIB (the number in it). Run by the integration test `orpc`.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { isDefinedError, ORPCError, createORPCClient, safe } from '@orpc/client'
import { OpenAPILink } from '@orpc/openapi-client/fetch'
import { contract } from './contract.mjs'

const { BASE_URL, KEY, NARROW_KEY, POOR_KEY, LIMITED_KEY, PHOTO, SELFIE, BIB } = process.env

function clientWith(key, extraHeaders = {}) {
  const headers = key === undefined ? extraHeaders : { 'x-api-key': key, ...extraHeaders }
  return createORPCClient(new OpenAPILink(contract, { url: BASE_URL, headers: () => headers }))
}

const client = clientWith(KEY)
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/

async function put(url, bytes) {
  const response = await fetch(url, { method: 'PUT', headers: { 'content-type': 'image/jpeg' }, body: bytes })
  assert.equal(response.status, 200, await response.text())
}

async function fails(call, { code, status, defined, data }) {
  const { error } = await safe(call)
  assert.ok(error instanceof ORPCError, `not an ORPCError: ${error}`)
  assert.equal(error.code, code)
  assert.equal(error.status, status)
  assert.equal(error.defined, defined, `${code}: defined`)
  assert.equal(isDefinedError(error), defined)
  assert.ok(error.message.length > 0)
  if (data === undefined) assert.equal(error.data, undefined)
  else data(error.data)
  return error
}

async function untilIdle(albumId) {
  const deadline = Date.now() + 60_000
  for (;;) {
    const progress = await client.albums.progress({ albumId })
    if (progress.queued === 0 && progress.processing === 0) return progress
    assert.ok(Date.now() < deadline, `still at work: ${JSON.stringify(progress)}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
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
    const deadline = Date.now() + 60_000
    let list
    do list = await startlist.get({ albumId: steps.album })
    while (list.left > 0 && Date.now() < deadline)
    assert.deepEqual([list.entries, list.judged, list.left, list.withoutLattice], [2, 1, 0, 0])
    const photo = await client.photos.photo.get({ albumId: steps.album, photoId: steps.photo })
    const text = photo.texts.find((text) => text.text === BIB)
    assert.deepEqual([text.onStartList, text.indexed, text.alternatives[0].text], [true, true, BIB])
    for (const { confidence } of text.alternatives) assert.ok(confidence > 0 && confidence <= 100)
    const page = await startlist.entries({ albumId: steps.album, prefix: BIB })
    assert.deepEqual([page.entries.map(({ bib, wave }) => [bib, wave]), page.total], [[[BIB, 'B']], 1])
    await startlist.delete({ albumId: steps.album })
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
}

function ignored() {}

for (const [name, step] of Object.entries(steps)) {
  await step()
  console.log(`ok - ${name}`)
}
