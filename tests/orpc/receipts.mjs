// Verifies receipts of erasures with a library for JOSE, as a runner, an authority or their lawyer would.
// Environment: RECEIPTS (a file: JSON list), KEYS (a file: JSON Web Key Set). Run by the integration test `erasures`.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { compactVerify, createLocalJWKSet } from 'jose'

const read = (name) => JSON.parse(readFileSync(process.env[name], 'utf8'))
const keys = createLocalJWKSet(read('KEYS'))
const receipts = read('RECEIPTS')
for (const { jws, ...receipt } of receipts) {
  const { payload, protectedHeader } = await compactVerify(jws, keys, { algorithms: ['EdDSA'] })
  assert.equal(protectedHeader.alg, 'EdDSA')
  const signed = JSON.parse(new TextDecoder().decode(payload))
  assert.equal(signed.receiptId, receipt.receiptId)
  assert.deepEqual(signed.removed, receipt.removed)
  assert.deepEqual(signed.scan, receipt.scan)
  // One bit of the text that was signed, and one of the signature.
  const [header, body, signature] = jws.split('.')
  for (const changed of [[header, flip(body), signature], [header, body, flip(signature)]]) {
    await assert.rejects(compactVerify(changed.join('.'), keys))
  }
}
console.log(`verified ${receipts.length} receipts`)

function flip(text) {
  const bytes = Buffer.from(text, 'base64url')
  bytes[bytes.length >> 1] ^= 1
  return bytes.toString('base64url')
}
