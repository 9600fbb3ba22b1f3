// What the programs share that call the service through the real oRPC client.
import assert from 'node:assert/strict'
import { isDefinedError, ORPCError, createORPCClient, safe } from '@orpc/client'
import { OpenAPILink } from '@orpc/openapi-client/fetch'

export const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/

// Makes clients of a contract, and notes the paths that they call.
export function clientsOf(contract) {
  const { BASE_URL } = process.env
  const called = new Set()
  function clientWith(key, extraHeaders = {}) {
    const headers = key === undefined ? extraHeaders : { 'x-api-key': key, ...extraHeaders }
    const link = new OpenAPILink(contract, {
      url: BASE_URL,
      headers: () => headers,
      fetch(request, init) {
        called.add(request.url.slice(BASE_URL.length))
        return fetch(request, init)
      },
    })
    return createORPCClient(link)
  }
  return { clientWith, called }
}

// Sends bytes to a presigned URL as the contract says: without the key, with their media type.
export async function put(url, bytes, contentType = 'image/jpeg') {
  const response = await fetch(url, { method: 'PUT', headers: { 'content-type': contentType }, body: bytes })
  assert.equal(response.status, 200, await response.text())
}

export async function fails(call, { code, status, defined, data }) {
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

// What a refusal says besides its code does not matter.
export function ignored() {}

// Calls until the result is as expected.
export async function until(call, isExpected) {
  const deadline = Date.now() + 60_000
  for (;;) {
    const result = await call()
    if (isExpected(result)) return result
    assert.ok(Date.now() < deadline, `still ${JSON.stringify(result)}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

export async function runSteps(steps) {
  for (const [name, step] of Object.entries(steps)) {
    await step()
    console.log(`ok - ${name}`)
  }
}
