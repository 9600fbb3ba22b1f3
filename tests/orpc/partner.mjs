// A partner's program that knows the contract alone, through the real oRPC client.
// Environment: BASE_URL (ends with /openapi), KEY, NARROW_KEY (search:read alone), PHOTO (a JPEG file), SELFIE (a JPEG file
// of the person in it), BIB (the number in it). Run by the integration test `orpc`.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { contract } from './partner-contract.mjs'
import { clientsOf, fails, ignored, put, runSteps, until } from './tools.mjs'

const { BASE_URL, KEY, NARROW_KEY, PHOTO, SELFIE, BIB } = process.env
const { clientWith } = clientsOf(contract)
const client = clientWith(KEY)

const settings = {
  confidenceThreshold: 'number',
  enabled: 'boolean',
  grid: ['null', { rows: 'number', columns: 'number', cellWidth: 'number', cellHeight: 'number' }],
  mode: /^(photo|grid)$/,
}
const id = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const dateTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/
const url = /^https?:\/\/.+/

// The tables of the contract: the documented members, each with its type. There may be more.
const shapes = {
  album: {
    id,
    organizationId: id,
    createdBy: id,
    title: 'string',
    coverUrl: ['null', url],
    tags: ['every', 'string'],
    config: ['null', {
      face: settings,
      text: settings,
      preview: { maxDimension: 'number' },
      thumbnail: { maxDimension: 'number' },
    }],
    createdAt: dateTime,
    updatedAt: dateTime,
  },
  uploadTicket: { uploadUrl: url, photoId: 'string' },
  probeTicket: { uploadUrl: url, imageId: 'string' },
  acknowledgement: { success: 'boolean', message: 'string' },
  faceHit: {
    id: 'string',
    url,
    thumbnailUrl: url,
    confidence: 'number',
    boundingBox: { top: 'number', left: 'number', width: 'number', height: 'number' },
  },
  textHit: { id: 'string', url, matchedText: 'string', confidence: 'number' },
}

function check(value, shape, path) {
  if (typeof shape === 'string') {
    assert.equal(typeof value, shape, `${path}: ${JSON.stringify(value)}`)
  } else if (shape instanceof RegExp) {
    assert.match(value, shape, path)
  } else if (Array.isArray(shape) && shape[0] === 'null') {
    if (value !== null) check(value, shape[1], path)
  } else if (Array.isArray(shape)) {
    assert.ok(Array.isArray(value), path)
    value.forEach((item, index) => check(item, shape[1], `${path}[${index}]`))
  } else {
    for (const [name, member] of Object.entries(shape)) check(value[name], member, `${path}.${name}`)
  }
}

function checkHits(result, shape) {
  check(result, { photos: ['every', shape], total: 'number' }, 'result')
  assert.equal(result.total, 1)
  return result.photos[0]
}

const steps = {
  async 'an album is created'() {
    const album = await client.albums.create({ title: 'T', coverUrl: 'https://example.com/c.jpg' })
    check(album, shapes.album, 'album')
    assert.deepEqual([album.title, album.coverUrl], ['T', 'https://example.com/c.jpg'])
    check(await client.albums.create({ title: 'Without a cover' }), shapes.album, 'album')
    await client.albums.list({})
    steps.album = album.id
  },

  async 'a photo is ingested'() {
    const albumId = steps.album
    const ticket = await client.photos.photo.signed({ albumId, filename: 'a.jpg', contentType: 'image/jpeg' })
    check(ticket, shapes.uploadTicket, 'ticket')
    await put(ticket.uploadUrl, await readFile(PHOTO))
    const confirmed = await client.photos.photo.success({ albumId, photoId: ticket.photoId })
    check(confirmed, shapes.acknowledgement, 'acknowledgement')
    assert.equal(confirmed.success, true)
    steps.photo = ticket.photoId
  },

  async 'a bib finds it'() {
    const search = () => client.photos.search.textList({ albumId: steps.album, text: BIB })
    const hit = checkHits(await until(search, ({ total }) => total > 0), shapes.textHit)
    assert.deepEqual([hit.id, hit.matchedText], [steps.photo, BIB])
    assert.equal((await fetch(hit.url)).status, 200)
  },

  async 'a selfie finds it'() {
    const albumId = steps.album
    const probe = await client.photos.search.faceSigned({ albumId })
    check(probe, shapes.probeTicket, 'ticket')
    await put(probe.uploadUrl, await readFile(SELFIE))
    const hit = checkHits(await client.photos.search.faceList({ albumId, imageId: probe.imageId }), shapes.faceHit)
    assert.equal(hit.id, steps.photo)
    for (const picture of [hit.url, hit.thumbnailUrl]) assert.equal((await fetch(picture)).status, 200)
  },

  async 'errors have the two shapes and nothing besides'() {
    const titled = { title: 'x' }
    await fails(clientWith(undefined).albums.create(titled), { code: 'UNAUTHORIZED', status: 401, defined: true, data: ignored })
    await fails(clientWith(NARROW_KEY).albums.create(titled), { code: 'FORBIDDEN', status: 403, defined: true, data: ignored })
    const unknown = { albumId: '01890000-0000-7000-8000-000000000000', text: BIB }
    await fails(client.photos.search.textList(unknown), { code: 'NOT_FOUND', status: 404, defined: true, data: ignored })
    await fails(client.albums.create({ title: '' }), { code: 'BAD_REQUEST', status: 400, defined: false, data: ignored })
    for (const [key, body] of [['', titled], [NARROW_KEY, titled], [KEY, { title: '' }]]) {
      const headers = { 'content-type': 'application/json', 'x-api-key': key }
      const response = await fetch(`${BASE_URL}/albums/create`, { method: 'POST', headers, body: JSON.stringify(body) })
      const error = await response.json()
      const members = ['code', 'data', 'defined', 'message', 'status']
      for (const name of Object.keys(error)) assert.ok(members.includes(name), name)
      check(error, { defined: 'boolean', code: 'string', status: 'number', message: 'string' }, 'error')
      assert.equal(error.status, response.status)
      if (error.defined && error.data !== undefined) check(error.data, { code: 'string' }, 'error.data')
    }
  },
}

await runSteps(steps)
